// Bytes as a file, for decoders that take the name of one.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace motley::fuzz {

/// One file in memory that is written over for every input: no folder fills up, and nothing is left.
class MemoryInput {
 public:
  explicit MemoryInput(std::string_view bytes) {
    static const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
    const bool written = file >= 0 && ::ftruncate(file, 0) == 0 && ::fchmod(file, 0600) == 0 &&
                         ::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    if (!written) throw std::runtime_error("no file in memory");
    name_ = "/proc/self/fd/" + std::to_string(file);
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

}  // namespace motley::fuzz
