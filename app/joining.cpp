#include "app/joining.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "app/input_error.h"
#include "kernels/parallel.h"

namespace motley::app {

void say_line(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

void say_end(actors::JoinEnd end) { say_line(end == actors::JoinEnd::run_over ? "the run is over" : "left the run"); }

std::pair<actors::Address, std::shared_ptr<const actors::Keys>> run_to_join(const std::string& join,
                                                                            const std::string& key) {
  const actors::Address address = actors::parse_join_address(join);
  std::shared_ptr<const actors::Keys> keys;
  if (!key.empty()) keys = std::make_shared<const actors::Keys>(actors::read_keys(key));
  if (address.port > 65535 - actors::kPortsBeside)
    throw InputError({"--join " + join}, "no run listens there", "it would need the three ports above as well");
  return {address, keys};
}

void use_compute_threads(int64_t threads) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const auto count = static_cast<int>(threads > 0 ? threads : cores);
  kernels::set_compute_threads(count, count);
}

LeaveOnSignal::LeaveOnSignal(actors::StopRequest& stop, std::string what_becomes)
    : stop_(stop), what_becomes_(std::move(what_becomes)) {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);  // inherited by every thread that starts from here on
  std::signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { watch(); });
}

LeaveOnSignal::~LeaveOnSignal() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
}

void LeaveOnSignal::watch() {
  for (int received = 0;;) {
    int signal = 0;
    if (sigwait(&set_, &signal) != 0) continue;
    if (done_) return;
    if (++received == 2) _exit(130);
    stop_ = 1;
    say_line("leaving: " + what_becomes_ + "; once more stops now");
  }
}

}  // namespace motley::app
