// Streams of the emulated device: queues of work that is done as late as it may be.
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/device_memory.h"
#include "kernels/emulator/graph.h"

namespace motley::kernels {
namespace {

struct Queue {
  std::deque<std::function<void()>> work;
  uint64_t given = 0, done = 0;  // pieces of work
};
using QueuePtr = std::shared_ptr<Queue>;

/// A place in a queue. An event that was never recorded has none and has come.
struct Mark {
  QueuePtr queue;
  uint64_t place = 0;
};

// Work of one stream may finish that of another, in the same thread.
std::recursive_mutex mutex;
std::vector<QueuePtr> streams;
std::atomic<uint64_t> host_waits = 0;
thread_local QueuePtr selected;  // null: the default stream

void finish(Queue& queue, uint64_t place) {
  while (queue.done < place) {
    const std::function<void()> work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    work();
  }
}

Mark mark_of(void* event) { return *static_cast<Mark*>(event); }

}  // namespace

namespace emulator {

void submit(std::function<void()> work) {
  if (selected == nullptr) return work();
  if (Recording* const recording = recording_of_thread(); recording != nullptr && recording->stream == selected.get()) {
    recording->work.push_back(std::move(work));
    return;
  }
  const std::lock_guard lock(mutex);
  selected->work.push_back(std::move(work));
  ++selected->given;
}

void finish_all() {
  refuse_in_capture("the host waits");
  ++host_waits;
  const std::lock_guard lock(mutex);
  for (const QueuePtr& queue : std::vector<QueuePtr>(streams)) finish(*queue, queue->given);
}

}  // namespace emulator

namespace emulated {

void* create_stream() {
  const std::lock_guard lock(mutex);
  streams.push_back(std::make_shared<Queue>());
  return streams.back().get();
}

void destroy_stream(void* stream) noexcept {
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].get() != stream) continue;
    const QueuePtr queue = streams[i];
    try {
      finish(*queue, queue->given);
    } catch (const std::exception& error) {
      emulator::tell_later(error.what());
    }
    streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void use_stream(void* stream) {
  const std::lock_guard lock(mutex);
  selected = nullptr;
  for (const QueuePtr& queue : streams)
    if (queue.get() == stream) selected = queue;
  if (stream != nullptr && selected == nullptr) throw emulator::Fault("emulated stream: used after it was destroyed");
}
void* stream_in_use() { return selected.get(); }

void* create_event() { return new Mark(); }
void destroy_event(void* event) noexcept { delete static_cast<Mark*>(event); }

void record(void* event) {
  emulator::refuse_in_capture("an event is recorded");
  const std::lock_guard lock(mutex);
  *static_cast<Mark*>(event) = selected == nullptr ? Mark{} : Mark{selected, selected->given};
}

void await(void* event) {
  emulator::refuse_in_capture("it waits for an event");
  const Mark mark = mark_of(event);
  if (mark.queue == nullptr) return;
  emulator::submit([mark] {
    const std::lock_guard lock(mutex);
    finish(*mark.queue, mark.place);
  });
}

uint64_t waits() { return host_waits; }

void finish_event(void* event) {
  emulator::refuse_in_capture("the host waits");
  const std::lock_guard lock(mutex);
  const Mark mark = mark_of(event);
  if (mark.queue == nullptr || mark.queue->done >= mark.place) return;
  ++host_waits;
  finish(*mark.queue, mark.place);
}

void finish_stream() {
  emulator::refuse_in_capture("the host waits");
  ++host_waits;
  const std::lock_guard lock(mutex);
  if (selected != nullptr) finish(*selected, selected->given);
}

}  // namespace emulated
}  // namespace motley::kernels
