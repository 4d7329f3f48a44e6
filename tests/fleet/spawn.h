// Processes of a test: started inside given namespaces, with the descriptors that they are to have, and gone when the
// test is, however it ends.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace motley::fleet {

/// An open descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  void close() { *this = Descriptor(); }

 private:
  int number_ = -1;
};

/// Namespaces that exist as long as somebody holds these descriptors or lives in them.
struct Namespaces {
  Descriptor user;     // not open: the caller's own
  Descriptor network;  // not open: the caller's own
  /// Moves the calling thread there; false with errno. Only between fork and exec: a process with threads cannot enter
  /// a user namespace.
  bool enter() const;
};

struct SpawnRequest {
  std::vector<std::string> words;          // program, found on PATH, and its arguments
  std::filesystem::path folder{};          // to run in; empty: the caller's
  std::vector<std::string> environment{};  // NAME=VALUE, beside the caller's
  int in = -1, out = -1, err = -1;         // -1: /dev/null
  std::vector<int> kept{};                 // further descriptors that it has, by the same numbers
  const Namespaces* inside = nullptr;
};

/// The kernel kills the process when the calling thread ends, so call it from the test's main thread. Throws
/// std::runtime_error with what failed where the program could not be started.
pid_t spawn(const SpawnRequest& request);

/// Runs it to its end, at most 10 seconds: the exit code (128 + number for a signal), with stdout and stderr in
/// `output`.
int run_to_end(SpawnRequest request, const std::string& input, std::string& output);

/// A file without a name, at its start, that holds `content`.
Descriptor memory_file(const std::string& content);

}  // namespace motley::fleet
