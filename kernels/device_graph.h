// Work that a device does again and again: captured once, then launched as a whole, which spares the host the launches
// of its kernels one by one (CUDA C++ Programming Guide, "CUDA Graphs").
#pragma once

#include <functional>

#include "kernels/device.h"
#include "kernels/graph_memory.h"

namespace motley::kernels {

/// For devices other than the CPU.
class Graph {
 public:
  /// Calls `work`, of which what it gives this thread's stream (not the default one) is recorded instead of done:
  /// kernels, copies and clears within the device, and copies with pinned memory. Addresses, sizes and arguments of
  /// kernels are recorded as they are. Throws what `work` throws, and std::runtime_error for what cannot be captured: a
  /// wait of the host, a copy with memory of the host that is not pinned, memory that outlives `work`. Nothing is
  /// recorded then.
  Graph(const Device& device, GraphMemory& memory, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  /// The work again, in the order of this thread's stream. All memory that it uses must still be there: the emulated
  /// device throws emulator::Fault when one is gone, to who waits.
  void launch() const;

 private:
  Device device_;
  void* handle_ = nullptr;
};

}  // namespace motley::kernels
