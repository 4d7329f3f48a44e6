#include "kernels/device_stream.h"

#include <cstring>
#include <exception>
#include <new>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"

namespace motley::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

/// function(args...) of the device, which is selected; nothing on the CPU.
#define MOTLEY_ON_DEVICE(device, function, ...)                                 \
  do {                                                                          \
    select_device(device);                                                      \
    if ((device).kind == DeviceKind::cuda) cuda::function(__VA_ARGS__);         \
    if ((device).kind == DeviceKind::emulated) emulated::function(__VA_ARGS__); \
  } while (false)

void* created(const Device& device, void* (*cuda_create)(), void* (*emulated_create)()) {
  select_device(device);
  return device.kind == DeviceKind::cuda       ? cuda_create()
         : device.kind == DeviceKind::emulated ? emulated_create()
                                               : nullptr;
}

}  // namespace

Stream::Stream(const Device& device)
    : device_(device), handle_(created(device, cuda::create_stream, emulated::create_stream)) {}
Stream::~Stream() {
  if (device_.kind == DeviceKind::cuda) cuda::destroy_stream(handle_);
  if (device_.kind == DeviceKind::emulated) emulated::destroy_stream(handle_);
}

StreamScope::StreamScope(const Stream& stream)
    : device_(stream.device_), before_(created(device_, cuda::stream_in_use, emulated::stream_in_use)) {
  MOTLEY_ON_DEVICE(device_, use_stream, stream.handle_);
}
StreamScope::~StreamScope() {
  if (device_.kind == DeviceKind::cuda) cuda::use_stream(before_);
  if (device_.kind == DeviceKind::emulated) emulated::use_stream(before_);
}

Event::Event(const Device& device)
    : device_(device), handle_(created(device, cuda::create_event, emulated::create_event)) {}
Event::~Event() {
  if (device_.kind == DeviceKind::cuda) cuda::destroy_event(handle_);
  if (device_.kind == DeviceKind::emulated) emulated::destroy_event(handle_);
}
void Event::record() { MOTLEY_ON_DEVICE(device_, record, handle_); }
void Event::await() const { MOTLEY_ON_DEVICE(device_, await, handle_); }
void Event::finish() const { MOTLEY_ON_DEVICE(device_, finish_event, handle_); }

PinnedBytes::PinnedBytes(const Device& device, size_t bytes) : device_(device), bytes_(bytes), data_(nullptr) {
  select_device(device);
  data_ = device.kind == DeviceKind::cuda       ? cuda::allocate_pinned(bytes)
          : device.kind == DeviceKind::emulated ? emulated::allocate_pinned(bytes)
                                                : ::operator new(bytes, kAlignment);
}
PinnedBytes::~PinnedBytes() {
  if (device_.kind == DeviceKind::cuda) cuda::release_pinned(data_);
  if (device_.kind == DeviceKind::emulated) emulated::release_pinned(data_);
  if (device_.kind == DeviceKind::cpu) ::operator delete(data_, kAlignment);
}

void copy_in_async(const Device& device, void* to, const void* pinned, size_t bytes) {
  if (device.kind == DeviceKind::cpu) return copy_bytes(to, {}, pinned, {}, bytes);
  MOTLEY_ON_DEVICE(device, copy_in_async, to, pinned, bytes);
}
void copy_out_async(const Device& device, void* pinned, const void* from, size_t bytes) {
  if (device.kind == DeviceKind::cpu) return copy_bytes(pinned, {}, from, {}, bytes);
  MOTLEY_ON_DEVICE(device, copy_out_async, pinned, from, bytes);
}
void finish_stream(const Device& device) { MOTLEY_ON_DEVICE(device, finish_stream); }

}  // namespace motley::kernels
