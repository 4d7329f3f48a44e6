#include "kernels/emulator/async_copies.h"

#include <algorithm>
#include <cstring>

#include "kernels/emulator/shared_memory.h"

namespace motley::kernels::emulator {

void AsyncCopies::start(void* to, const void* from, size_t bytes, size_t valid) {
  Copy copy{to, {}, bytes, groups_};
  if (valid > 0) std::memcpy(copy.data.data(), from, valid);
  std::memset(to, kOnes, bytes);
  copies_.push_back(copy);
}

bool AsyncCopies::wait(int pending) {
  bool undisturbed = true;
  const auto arrives = [&](const Copy& copy) { return copy.group < groups_ - pending; };
  for (const Copy& copy : copies_) {
    if (!arrives(copy)) continue;
    const auto* there = static_cast<const unsigned char*>(copy.to);
    undisturbed &= std::all_of(there, there + copy.bytes, [](unsigned char byte) { return byte == kOnes; });
    std::memcpy(copy.to, copy.data.data(), copy.bytes);
  }
  copies_.erase(std::remove_if(copies_.begin(), copies_.end(), arrives), copies_.end());
  return undisturbed;
}

void AsyncCopies::clear() {
  copies_.clear();
  groups_ = 0;
}

}  // namespace motley::kernels::emulator
