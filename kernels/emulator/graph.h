// What the emulated device notes while a graph is captured.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "kernels/emulator/emulator.h"

namespace motley::kernels::emulator {

/// A buffer of the device, or pinned: where it begins, and which of those that began there; 0: none.
struct Holder {
  const void* begin = nullptr;
  uint64_t number = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): what the default compares with 0 is no pointer.
  auto operator<=>(const Holder&) const = default;
};
/// The buffer, in use, that an address lies in or ends.
Holder holder_of(const void* address);

struct Recording {
  void* stream = nullptr;
  std::vector<std::function<void()>> work;
  std::set<Holder> buffers;  // whose addresses were among the arguments of kernels and copies
};
/// Null: nothing is captured.
Recording* recording_of_thread();
/// Throws Fault while something is: a device could not do it then.
void refuse_in_capture(const char* what);

}  // namespace motley::kernels::emulator
