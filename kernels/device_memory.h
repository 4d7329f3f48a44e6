// What the devices that are not the host are asked for beside kernels: memory, copies, streams and events. Used by ops,
// kernels' scratch, transfers and the tests; kernels/device_buffer.h and kernels/device_stream.h hold them by scope.
//
// Work goes to this thread's stream (use_stream), and is done in its order: kernels, copies, and memory's allocation
// and release. The default stream is null. Streams wait for each other by events alone; what the host reads or hands
// out again it must wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace motley::kernels {

/// Of a device, in bytes.
struct MemoryUse {
  size_t in_use = 0;  // allocated and not released
  size_t held = 0;    // by the pool: that, and what it keeps for the next allocation
  size_t most = 0;    // the largest in_use since the process began
  size_t free = 0;    // outside the pool
  size_t total = 0;
};
/// The message of a refused allocation: what was asked for, held and free.
std::string out_of_memory(const std::string& device, size_t bytes, const MemoryUse& use);

namespace cuda {
/// True when the CUDA bodies are in this binary; else everything else here throws "built without CUDA".
bool built();
/// CUDA devices of this machine that can be used; 0 when there is no driver.
int device_count();
/// Selects the device of this thread for all that follows.
void use_device(int index);
/// Of the selected device: 90 for 9.0.
int compute_capability();
/// Why wide products on matrix units (kernels/matmul.h) do not move to warpgroups on the selected device; empty: they
/// do. Computes a product there when it is first asked.
std::string warpgroup_refusal();

/// Uninitialized, from a pool that keeps what is released; throws std::runtime_error when there is not enough, after
/// the pool gave back what it could. `bytes` may be 0.
void* allocate(size_t bytes);
void release(void* memory) noexcept;
MemoryUse memory_use();
/// The pool gives back what nobody uses.
void trim();

/// In the order of this thread's stream, which the host waits for.
void copy_in(void* to, const void* from, size_t bytes);
void copy_out(void* to, const void* from, size_t bytes);
/// Within the device.
void copy(void* to, const void* from, size_t bytes);
/// Sets bytes to 0.
void clear(void* memory, size_t bytes);
/// Memory of the host that async copies need.
void* allocate_pinned(size_t bytes);
void release_pinned(void* memory) noexcept;
void copy_in_async(void* to, const void* pinned, size_t bytes);
void copy_out_async(void* pinned, const void* from, size_t bytes);
/// From another device of the machine to the selected one, directly where they can reach each other: after what the
/// default stream of the other device was given so far, and before what it is given from now on. The host does not
/// wait.
void copy_from_peer(void* to, const void* from, int from_device, size_t bytes);

/// A stream is one of the selected device. Destroying it does not stop what it was given.
void* create_stream();
void destroy_stream(void* stream) noexcept;
void use_stream(void* stream);
void* stream_in_use();
void* create_event();
void destroy_event(void* event) noexcept;
/// The event comes when all that this thread's stream was given so far is done.
void record(void* event);
/// What this thread's stream is given from now on waits for the event.
void await(void* event);
/// The host waits; throws what a kernel met.
void finish_event(void* event);
void finish_stream();
/// Waits for all streams; throws what one of their kernels met.
void synchronize();

// kernels/device_graph.h is how these are used.
/// What this thread's stream, which is not the default one, is given from now on is recorded and not done.
void begin_capture();
/// What was recorded.
void* end_capture();
void cancel_capture() noexcept;
void launch_graph(void* graph);
void destroy_graph(void* graph) noexcept;
/// Memory for work that is captured, in the order of no stream.
void* allocate_at_once(size_t bytes);
}  // namespace cuda

/// The emulated device does the work of a stream as late as it may: when the host waits for it, or when another stream
/// does that the host waits for. So whoever does not wait sees what a GPU shows by chance alone. Kernels of the default
/// stream run at once.
namespace emulated {
/// The latest whose instructions it has: 90.
int compute_capability();
std::string warpgroup_refusal();
/// Filled with 0xff (NaN in every float format); a store next to it is seen by AddressSanitizer or by synchronize, and
/// so is one after its release.
void* allocate(size_t bytes);
void release(void* memory) noexcept;
MemoryUse memory_use();
void trim();
/// The memory that the device has; what it begins with is more than any test needs.
void set_total_memory(size_t bytes);

void copy_in(void* to, const void* from, size_t bytes);
void copy_out(void* to, const void* from, size_t bytes);
void copy(void* to, const void* from, size_t bytes);
void clear(void* memory, size_t bytes);
/// The other side of an async copy must be such memory: else emulator::Fault. An unfinished copy to it is NaN.
void* allocate_pinned(size_t bytes);
void release_pinned(void* memory) noexcept;
void copy_in_async(void* to, const void* pinned, size_t bytes);
void copy_out_async(void* pinned, const void* from, size_t bytes);
/// There is one emulated device: a copy within it.
void copy_from_peer(void* to, const void* from, int from_device, size_t bytes);

void* create_stream();
void destroy_stream(void* stream) noexcept;
void use_stream(void* stream);
void* stream_in_use();
void* create_event();
void destroy_event(void* event) noexcept;
void record(void* event);
void await(void* event);
void finish_event(void* event);
void finish_stream();
/// How often the host has waited so far: for a stream, all of them, or an event that had not come.
uint64_t waits();
/// Throws what synchronize does, and waits for nothing.
void check_buffers();
/// Throws emulator::Fault for stores outside buffers or to released ones, and for what was released twice or never
/// allocated.
void synchronize();

/// While a graph is captured a wait of the host is an emulator::Fault; memory is filled anew with 0xff at every launch.
void begin_capture();
void* end_capture();
void cancel_capture() noexcept;
void launch_graph(void* graph);
void destroy_graph(void* graph) noexcept;
void* allocate_at_once(size_t bytes);
}  // namespace emulated

}  // namespace motley::kernels
