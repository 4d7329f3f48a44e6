#include "tests/fleet/program.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace motley::fleet {

Program::Program(const TemporaryFolder& folder, std::string name, std::vector<std::string> words,
                 const Machine* machine)
    : folder_(folder), name_(std::move(name)) {
  int ends[2];
  // A socket, for MSG_NOSIGNAL: a write to a program that has ended is an error, not the end of the test.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair failed");
  const Descriptor reading(ends[0]);
  input_ = Descriptor(ends[1]);
  const auto file = [&](const char* ending) {
    const std::filesystem::path path = folder_ / (name_ + ending);
    Descriptor made(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    if (!made.open()) throw std::runtime_error(path.string() + ": " + std::strerror(errno));
    return made;
  };
  const Descriptor out = file(".out"), err = file(".err");
  child_ = spawn({.words = std::move(words),
                  .folder = folder_.path(),
                  .in = reading.get(),
                  .out = out.get(),
                  .err = err.get(),
                  .inside = machine ? &machine->namespaces() : nullptr});
}

Program::~Program() {
  if (child_ == 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

void Program::signal(int number) const {
  if (child_ != 0) ::kill(child_, number);
}

bool Program::running() {
  if (child_ != 0 && ::waitpid(child_, &status_, WNOHANG) == child_) child_ = 0;
  return child_ != 0;
}

std::string Program::log_end() const {
  std::ifstream in(folder_ / (name_ + ".err"), std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(in.tellg());
  std::string text(static_cast<size_t>(std::clamp<int64_t>(size, 0, 4000)), '\0');
  in.seekg(size - static_cast<int64_t>(text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

int Program::wait(Seconds limit) {
  if (!wait_until(limit, [&] { return !running(); }))
    throw std::runtime_error(name_ + " has not ended within " + std::to_string(limit.count()) +
                             " s; its log:" + log_end());
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

void Program::wait_for_log(const std::string& text, Seconds limit, int times) {
  const auto seen = [&] { return occurrences(log(), text) >= times; };
  const bool ended = wait_until(limit, [&] { return seen() || !running(); });
  if (seen()) return;
  throw std::runtime_error(name_ + (ended ? " has ended without" : " has not said in time") + " \"" + text +
                           "\"; its log:" + log_end());
}

void Program::write_line(const std::string& line) const {
  const std::string text = line + "\n";
  if (::send(input_.get(), text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error(name_ + " takes no input: " + std::strerror(errno));
}

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace motley::fleet
