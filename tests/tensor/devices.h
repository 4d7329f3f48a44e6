// The devices that the tests of tensors run on. A test that takes a device has the tag [device] and asks here for it:
//
//   const Device device = every_device();         // the test runs once for each
//   INFO(kernels::device_name(device));
//
// or compares other_device() with the CPU. MOTLEY_TEST_DEVICE, as in cuda:0, puts that device in place of all others:
// `make device-check` runs `test_tensor [device]` so, on a GPU.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "kernels/device_buffer.h"
#include "tensor/tensor.h"

namespace motley::test {

inline const Device kCpu{};

/// The device that is not the CPU: the emulated one, or MOTLEY_TEST_DEVICE.
inline Device other_device() {
  const char* wanted = std::getenv("MOTLEY_TEST_DEVICE");
  return kernels::parse_device(wanted != nullptr ? wanted : "emulated");
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
/// For tests of other_device(): ThreadSanitizer makes the emulator's switches of fibers slow and has nothing to look at
/// in them, since all lanes run on one thread; one case of each kind is enough there (docs/decisions.md).
inline bool enough(int cases_done) { return kThreadSanitizer && cases_done > 0; }

inline std::vector<Device> devices() {
  if (std::getenv("MOTLEY_TEST_DEVICE") != nullptr) return {other_device()};
  if (kThreadSanitizer) return {kCpu};
  return {kCpu, other_device()};
}

inline Device every_device() { return GENERATE(from_range(devices())); }

/// Sizes of a test: whole on the CPU, small on other devices, where the emulator takes a thousand times as long, and
/// under ThreadSanitizer, to which a test on one thread says nothing.
template <class T>
T sized(const Device& device, T whole, T small) {
  return device == kCpu && !kThreadSanitizer ? whole : small;
}

/// Sets the elements of a tensor of any device.
inline void store(const Tensor& to, const std::vector<double>& values) {
  const Tensor from = Tensor::from(std::span<const double>(values), to.shape(), to.dtype());
  const size_t bytes = values.size() * kernels::dtype_size(to.dtype());
  kernels::copy_bytes(to.raw(), to.device(), from.raw(), kCpu, bytes);
}
inline void store(const Tensor& to, size_t index, double value) {
  std::vector<double> values = to.to_doubles();
  values.at(index) = value;
  store(to, values);
}

}  // namespace motley::test
