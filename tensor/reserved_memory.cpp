#include "tensor/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/huge_pages.h"

namespace motley {
namespace {

[[noreturn]] void refused(const std::string& what, size_t bytes) {
  throw std::runtime_error("cannot " + what + " " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
}

}  // namespace

size_t system_page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

ReservedMemory::ReservedMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) refused("reserve addresses for", bytes);
  data_ = static_cast<std::byte*>(range);
}

ReservedMemory::~ReservedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void ReservedMemory::commit(size_t begin, size_t end) {
  const size_t unit = system_page_size(), first = begin / unit * unit;
  if (begin < end && mprotect(data_ + first, end - first, PROT_READ | PROT_WRITE) != 0)
    refused("allocate", end - begin);
  // Of a piece this large the last huge page is a small part, even if little of it is used.
  if (begin < end && end - begin >= 8 * kernels::kHugePage) kernels::prefer_huge_pages(data_ + begin, end - begin);
}

}  // namespace motley
