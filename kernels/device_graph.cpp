#include "kernels/device_graph.h"

#include <stdexcept>
#include <string>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"

namespace motley::kernels {

/// A capture that is given up unless it is ended.
class CaptureScope {
 public:
  CaptureScope(const Device& device, GraphMemory& memory) : device_(device), memory_(memory) {
    device.kind == DeviceKind::cuda ? cuda::begin_capture() : emulated::begin_capture();
    memory.begin();
  }
  ~CaptureScope() {
    if (ended_) return;
    device_.kind == DeviceKind::cuda ? cuda::cancel_capture() : emulated::cancel_capture();
    memory_.end();
  }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  void* end() {
    void* const graph = device_.kind == DeviceKind::cuda ? cuda::end_capture() : emulated::end_capture();
    ended_ = true;
    left_ = memory_.end();
    return graph;
  }
  size_t left() const { return left_; }

 private:
  Device device_;
  GraphMemory& memory_;
  bool ended_ = false;
  size_t left_ = 0;
};

namespace {
void destroy(const Device& device, void* graph) noexcept {
  device.kind == DeviceKind::cuda ? cuda::destroy_graph(graph) : emulated::destroy_graph(graph);
}
}  // namespace

Graph::Graph(const Device& device, GraphMemory& memory, const std::function<void()>& work) : device_(device) {
  if (device.kind == DeviceKind::cpu) throw std::logic_error("graph: the CPU has none");
  select_device(device);
  CaptureScope scope(device, memory);
  work();
  handle_ = scope.end();
  if (scope.left() == 0) return;
  destroy(device_, handle_);
  throw std::runtime_error("graph: " + std::to_string(scope.left()) + " bytes outlive the work that is captured");
}

Graph::~Graph() { destroy(device_, handle_); }

void Graph::launch() const {
  select_device(device_);
  device_.kind == DeviceKind::cuda ? cuda::launch_graph(handle_) : emulated::launch_graph(handle_);
}

}  // namespace motley::kernels
