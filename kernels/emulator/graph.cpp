// Graphs of the emulated device: a list of work, each piece with the buffers that it names.
#include "kernels/emulator/graph.h"

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/device_memory.h"

namespace motley::kernels {
namespace {

using emulator::Fault;
using emulator::Recording;

thread_local std::unique_ptr<Recording> recording;

void run(const Recording& recorded) {
  for (const emulator::Holder& holder : recorded.buffers)
    if (emulator::holder_of(holder.begin) != holder)
      throw Fault("emulated graph: launched after a buffer that it uses was released");
  for (const std::function<void()>& work : recorded.work) work();
}

}  // namespace

namespace emulator {

Recording* recording_of_thread() { return recording.get(); }

void refuse_in_capture(const char* what) {
  if (recording) throw Fault(std::string("emulated stream: ") + what + " while a graph is captured");
}

void note_pointers(const void* bytes, size_t count) {
  if (!recording) return;
  for (size_t at = 0; at + sizeof(void*) <= count; at += sizeof(void*)) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, static_cast<const std::byte*>(bytes) + at, sizeof(pointer));
    const Holder holder = holder_of(pointer);
    if (holder.number != 0) recording->buffers.insert(holder);
  }
}

}  // namespace emulator

namespace emulated {

void begin_capture() {
  if (stream_in_use() == nullptr) throw Fault("emulated stream: the default one cannot be captured");
  emulator::refuse_in_capture("a capture begins");
  recording = std::make_unique<Recording>();
  recording->stream = stream_in_use();
}

void* end_capture() {
  if (recording->stream != stream_in_use()) throw Fault("emulated stream: a capture ends on another stream");
  return new std::shared_ptr<const Recording>(std::move(recording));
}

void cancel_capture() noexcept { recording.reset(); }

void launch_graph(void* graph) {
  emulator::refuse_in_capture("another is launched");
  emulator::submit([recorded = *static_cast<std::shared_ptr<const Recording>*>(graph)] { run(*recorded); });
}

void destroy_graph(void* graph) noexcept { delete static_cast<std::shared_ptr<const Recording>*>(graph); }

}  // namespace emulated
}  // namespace motley::kernels
