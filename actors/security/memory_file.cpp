#include "actors/security/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "actors/security/keys.h"

namespace motley::actors {

MemoryFile::MemoryFile(const std::string& bytes) : fd_(::memfd_create("motley", MFD_CLOEXEC)) {
  if (fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) return;
  const std::string why = std::strerror(errno);
  if (fd_ >= 0) ::close(fd_);
  throw KeyError("a key cannot be put into a file in memory: " + why);
}

MemoryFile::~MemoryFile() { ::close(fd_); }

}  // namespace motley::actors
