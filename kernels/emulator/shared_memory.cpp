#include "kernels/emulator/shared_memory.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/emulator/random_order.h"

namespace motley::kernels::emulator {
namespace {

uint64_t pattern_of(Poison poison, uint64_t seed) {
  switch (poison) {
    case Poison::f64:
      return 0x7ff4a5a5a5a5a5a5u;
    case Poison::f32:
      return 0x7fa5a5a57fa5a5a5u;
    case Poison::ones:
      return ~uint64_t{0};
    default:
      return scrambled(seed);
  }
}

}  // namespace

void* SharedMemory::array(const void* key, size_t bytes, Poison poison, uint64_t seed, int64_t limit) {
  auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.key == key; });
  if (found == arrays_.end()) {
    const size_t total = this->bytes() + bytes;
    if (total > static_cast<size_t>(limit))
      throw std::length_error(std::to_string(total) + " bytes of shared memory, of " + std::to_string(limit));
    arrays_.push_back({key, std::make_unique<GuardedBytes>(bytes), poison, true});
    found = arrays_.end() - 1;
  }
  if (std::exchange(found->fresh, false)) {
    const uint64_t pattern = pattern_of(poison, seed);
    auto* memory = static_cast<unsigned char*>(found->memory->data());
    for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<unsigned char>(pattern >> (i % 8 * 8));
  }
  return found->memory->data();
}

void SharedMemory::next_block() {
  for (Array& array : arrays_) array.fresh = true;
}

size_t SharedMemory::bytes() const {
  size_t total = 0;
  for (const Array& array : arrays_) total += array.memory->size();
  return total;
}

bool SharedMemory::contains(const void* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    const auto first = reinterpret_cast<uintptr_t>(array.memory->data());
    return begin >= first && begin + bytes <= first + array.memory->size();
  });
}

size_t SharedMemory::overrun() {
  for (const Array& array : arrays_)
    if (!array.memory->intact()) return array.memory->size();
  return 0;
}

}  // namespace motley::kernels::emulator
