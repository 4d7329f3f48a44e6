#include "kernels/emulator/guarded.h"

#include <algorithm>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace motley::kernels::emulator {
namespace {
constexpr unsigned char kGuard = 0xfb;  // as float, double or bf16 a large number that no result survives
}

GuardedBytes::GuardedBytes(size_t bytes, uint64_t number)
    : bytes_(bytes), number_(number), memory_(new unsigned char[bytes + 2 * kZone]) {
  fill_zones();
  hide(true);
}
GuardedBytes::~GuardedBytes() { hide(false); }

void GuardedBytes::retire() {
  hide(false);
  retired_ = true;
  fill_zones();
  hide(true);
}

void GuardedBytes::fill_zones() {
  std::fill_n(memory_.get(), kZone + (retired_ ? bytes_ : 0), kGuard);
  std::fill_n(memory_.get() + kZone + bytes_, kZone, kGuard);
}

void GuardedBytes::hide([[maybe_unused]] bool hidden) const {
#if defined(__SANITIZE_ADDRESS__)
  if (hidden) {
    ASAN_POISON_MEMORY_REGION(memory_.get(), kZone + (retired_ ? bytes_ : 0));
    ASAN_POISON_MEMORY_REGION(memory_.get() + kZone + bytes_, kZone);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(memory_.get(), bytes_ + 2 * kZone);
  }
#endif
}

bool GuardedBytes::intact() {
  const auto untouched = [](unsigned char byte) { return byte == kGuard; };
  hide(false);
  const unsigned char* const begin = memory_.get();
  const unsigned char* const end = begin + kZone + bytes_;
  const bool intact = std::all_of(begin, begin + kZone + (retired_ ? bytes_ : 0), untouched) &&
                      std::all_of(end, end + kZone, untouched);
  fill_zones();
  hide(true);
  return intact;
}

}  // namespace motley::kernels::emulator
