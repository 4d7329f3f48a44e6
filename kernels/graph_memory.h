// Memory of the work of graphs: what it allocates while it is captured stays at its place, as every replay uses it.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "kernels/device.h"

namespace motley::kernels {

/// While a thread captures (kernels/device_graph.h), `allocate` and `release` of its device come here. What the work
/// releases it may get again, as all of it is in one stream's order. Graphs that share such a memory must not run at
/// the same time, and leave nothing in it for each other.
class GraphMemory {
 public:
  explicit GraphMemory(const Device& device) : device_(device) {}
  /// After the last of its graphs.
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  /// This thread's while it captures, else null.
  static GraphMemory* of_capture();

  void* allocate(size_t bytes);
  /// The size that was asked for. Memory of before the capture is released after it: then 0.
  size_t release(void* memory);
  /// Bytes of the device.
  size_t held() const;

 private:
  friend class CaptureScope;
  void begin();
  /// What is still in use belongs to who releases it from now on; returns how many bytes that are.
  size_t end() noexcept;

  struct Block {
    size_t size = 0, asked = 0;
    bool in_use = false;
  };
  Device device_;
  std::map<void*, Block> blocks_;
  std::vector<void*> released_;  // of before the capture
};

}  // namespace motley::kernels
