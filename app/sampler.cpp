// motley sampler: joins a run elsewhere as one of its samplers; the work is actors/remote/join.h.
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <thread>

#include "actors/checkpoint.h"
#include "actors/remote/join.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"
#include "kernels/device_memory.h"
#include "kernels/parallel.h"
#include "tensor/config_json.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

/// The first CUDA device, or the CPU.
kernels::Device best_device() {
  if (kernels::cuda::device_count() > 0) return {kernels::DeviceKind::cuda, 0};
  return {};
}

/// What profiles call the accelerator; empty for a CPU.
std::string hardware_of(const kernels::Device& device) {
  if (device.kind != kernels::DeviceKind::cuda) return {};
  constexpr size_t kLargestH100 = size_t{100} << 30;  // bytes: an H200 has 141 GB
  kernels::cuda::use_device(device.index);
  switch (const int capability = kernels::cuda::compute_capability(); capability) {
    case 80:
      return "A100";
    case 90:
      return kernels::cuda::memory_use().total > kLargestH100 ? "H200" : "H100";
    case 100:
      return "B200";
    case 103:
      return "B300";
    case 120:
      return "RTX PRO 6000";
    default:
      return "compute capability " + std::to_string(capability);
  }
}

/// config.json of a checkpoint or run folder, as the run writes its own.
std::string model_of(const std::string& folder) {
  const std::filesystem::path file = actors::find_checkpoint(folder) / "config.json";
  return config_to_json(config_from_json(file, read_file(file)).resolved());
}

/// SIGINT and SIGTERM: the first asks the sampler to leave, the second ends the process.
class LeaveOnSignal {
 public:
  explicit LeaveOnSignal(actors::StopRequest& stop) : stop_(stop) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);  // inherited by every thread that starts from here on
    thread_ = std::thread([this] { watch(); });
  }
  ~LeaveOnSignal() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

 private:
  void watch() {
    for (int received = 0;;) {
      int signal = 0;
      if (sigwait(&set_, &signal) != 0) continue;
      if (done_) return;
      if (++received == 2) _exit(130);
      stop_ = 1;
      say("leaving: what is being drawn goes on elsewhere; once more stops now");
    }
  }
  actors::StopRequest& stop_;
  sigset_t set_{};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace

int sampler_command(const SamplerArguments& arguments) {
  actors::StopRequest stop{0};
  const LeaveOnSignal signals(stop);  // before any other thread: one that does not block the signals would get them
  actors::JoinRequest request;
  request.address = actors::parse_join_address(arguments.join);
  if (!arguments.key.empty()) request.keys = std::make_shared<const actors::Keys>(actors::read_keys(arguments.key));
  if (request.address.port > 65535 - actors::kPortsBeside)
    throw InputError({"--join " + arguments.join}, "no run listens there",
                     "it would need the three ports above as well");
  request.device = arguments.device == "auto" ? best_device() : device_argument(arguments.device);
  request.hardware = hardware_of(request.device);
  request.group = arguments.group;
  request.instance = arguments.instance;
  request.patience = std::chrono::seconds(arguments.patience);
  if (!arguments.model.empty()) request.model = model_of(arguments.model);
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const auto threads = static_cast<int>(arguments.threads > 0 ? arguments.threads : cores);
  kernels::set_compute_threads(threads, threads);
  std::signal(SIGPIPE, SIG_IGN);
  const actors::JoinEnd end = actors::run_sampler(request, say, stop);
  say(end == actors::JoinEnd::run_over ? "the run is over" : "left the run");
  return 0;
}

}  // namespace motley::app
