// A file that is in memory alone and in no folder, for libraries that want the name of a file with a secret.
#pragma once

#include <string>

namespace motley::actors {

/// Gone with this object or this process, however that ends; other users cannot open it, and children do not inherit
/// it.
class MemoryFile {
 public:
  /// Throws KeyError where the system has no memory files.
  explicit MemoryFile(const std::string& bytes);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  /// Opens in this process alone, from its first byte, as often as one likes.
  std::string name() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_ = -1;
};

}  // namespace motley::actors
