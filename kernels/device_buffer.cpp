#include "kernels/device_buffer.h"

#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "kernels/device_memory.h"
#include "kernels/device_staging.h"

namespace motley::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

void release_cuda(void* memory, const Device& device) noexcept {
  try {
    select_device(device);
  } catch (const std::exception&) {  // the process ends, and the device is gone before the memory
    return;
  }
  cuda::release(memory);
}

void read_back(void* to, const void* from, const Device& from_device, size_t bytes) {
  download(from_device, to, from, bytes);
  if (from_device.kind == DeviceKind::emulated) emulated::check_buffers();
}

}  // namespace

void select_device(const Device& device) {
  if (device.kind == DeviceKind::cuda) cuda::use_device(device.index);
}

std::shared_ptr<void> allocate_on(const Device& device, size_t bytes) {
  select_device(device);
  switch (device.kind) {
    case DeviceKind::cpu:
      return {::operator new(bytes, kAlignment), [](void* memory) { ::operator delete(memory, kAlignment); }};
    case DeviceKind::cuda:
      return {cuda::allocate(bytes), [device](void* memory) { release_cuda(memory, device); }};
    case DeviceKind::emulated:
      return {emulated::allocate(bytes), emulated::release};
  }
  return nullptr;
}

void copy_bytes(void* to, const Device& to_device, const void* from, const Device& from_device, size_t bytes) {
  if (bytes == 0) return;
  const bool from_host = from_device.kind == DeviceKind::cpu, to_host = to_device.kind == DeviceKind::cpu;
  if (from_host && to_host) {
    std::memcpy(to, from, bytes);
  } else if (to_host) {
    read_back(to, from, from_device, bytes);
  } else if (from_host) {
    upload(to_device, to, from, bytes);
  } else if (from_device == to_device) {
    select_device(to_device);
    to_device.kind == DeviceKind::cuda ? cuda::copy(to, from, bytes) : emulated::copy(to, from, bytes);
  } else if (from_device.kind == DeviceKind::cuda && to_device.kind == DeviceKind::cuda) {
    select_device(to_device);
    cuda::copy_from_peer(to, from, from_device.index, bytes);
  } else {
    std::vector<std::byte> staged(bytes);
    copy_bytes(staged.data(), {}, from, from_device, bytes);
    copy_bytes(to, to_device, staged.data(), {}, bytes);
  }
}

void clear_bytes(void* memory, const Device& device, size_t bytes) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::cpu) {
    std::memset(memory, 0, bytes);
    return;
  }
  select_device(device);
  device.kind == DeviceKind::cuda ? cuda::clear(memory, bytes) : emulated::clear(memory, bytes);
}

}  // namespace motley::kernels
