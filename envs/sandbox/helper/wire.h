// Messages between motley, the keeper of its sandboxes and the first process of each: numbers in the machine's own byte
// order (both ends are one build on one machine), strings of any bytes with their length before them.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace motley::envs::wire {

constexpr uint32_t largest_message = 80U << 20;
enum class Kind : uint8_t { setup, call, run, put, take };

/// What the first process says before it ends the sandbox for its time.
constexpr const char* episode_over = "the time limit of the episode is over";

/// Where things are inside a sandbox.
constexpr const char* work_folder = "/task";
constexpr const char* scratch_folder = "/tmp";
constexpr const char* shared_memory_folder = "/dev/shm";

class Writer {
 public:
  Writer& u8(uint8_t value) { return raw(&value, sizeof value); }
  Writer& u32(uint32_t value) { return raw(&value, sizeof value); }
  Writer& u64(uint64_t value) { return raw(&value, sizeof value); }
  Writer& text(std::string_view value) {
    u32(static_cast<uint32_t>(value.size()));
    return raw(value.data(), value.size());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Writer& raw(const void* data, size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string bytes_;
};

/// Throws std::runtime_error where the message ends too early.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  uint8_t u8() { return number<uint8_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  std::string_view text() { return take(u32()); }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view take(size_t size) {
    if (size > rest_.size()) throw std::runtime_error("a message of the sandbox is cut short");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view rest_;
};

/// What the first process of a sandbox holds itself and the shell to.
struct Setup {
  uint64_t watched_memory = 0;  // bytes of the whole tree, looked at by the first process; 0: a cgroup does it
  uint64_t files = 0;           // files and folders in the sandbox's file systems, looked at likewise
  uint64_t file_bytes = 0;
  uint32_t processes = 0, open_files = 0;
  uint32_t cpu_seconds = 0;           // of one process
  uint32_t episode_milliseconds = 0;  // until everything ends
};

/// Why everything that ran in the sandbox was killed in a call.
enum class Killed : uint8_t { no, memory, files };

/// What happened in a call.
struct Report {
  uint32_t status = 0;  // of the command; 128 + signal where the shell died of one
  bool timed_out = false;
  bool new_shell = false;  // the shell ended: another goes on in the same folder, without the variables
  Killed killed = Killed::no;
  uint64_t microseconds = 0;
  uint64_t cut = 0;  // bytes of the output that are in neither head nor tail
  std::string head, tail;
};

enum class EntryKind : uint8_t { file, executable, symlink, folder };
constexpr uint8_t end_of_tree = 255;  // after the last entry: a text follows, empty or why the tree is not whole

}  // namespace motley::envs::wire
