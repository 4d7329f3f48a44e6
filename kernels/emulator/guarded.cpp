#include "kernels/emulator/guarded.h"

#include <algorithm>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace motley::kernels::emulator {
namespace {
constexpr unsigned char kGuard = 0xfb;  // as float, double or bf16 a large number that no result survives
}

GuardedBytes::GuardedBytes(size_t bytes) : bytes_(bytes), memory_(new unsigned char[bytes + 2 * kZone]) {
  fill_zones();
  hide(true);
}
GuardedBytes::~GuardedBytes() { hide(false); }

void GuardedBytes::fill_zones() {
  std::fill_n(memory_.get(), kZone, kGuard);
  std::fill_n(memory_.get() + kZone + bytes_, kZone, kGuard);
}

void GuardedBytes::hide([[maybe_unused]] bool hidden) const {
#if defined(__SANITIZE_ADDRESS__)
  unsigned char* const begin = memory_.get();
  unsigned char* const end = begin + kZone + bytes_;
  if (hidden) {
    ASAN_POISON_MEMORY_REGION(begin, kZone);
    ASAN_POISON_MEMORY_REGION(end, kZone);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(begin, bytes_ + 2 * kZone);
  }
#endif
}

bool GuardedBytes::intact() {
  const auto untouched = [](unsigned char byte) { return byte == kGuard; };
  hide(false);
  const unsigned char* const end = memory_.get() + kZone + bytes_;
  const bool intact =
      std::all_of(memory_.get(), memory_.get() + kZone, untouched) && std::all_of(end, end + kZone, untouched);
  fill_zones();
  hide(true);
  return intact;
}

}  // namespace motley::kernels::emulator
