// Which machine a tensor lives on and a kernel runs on: `cpu`, `cuda:N`, or `emulated` (the CUDA source compiled for
// the host). Each is a namespace of kernel bodies with the same declarations; MOTLEY_DISPATCH picks one at run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace motley::kernels {

enum class DeviceKind : uint8_t { cpu, cuda, emulated };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  // of a CUDA device
  bool operator==(const Device&) const = default;
};

/// Throws std::invalid_argument, which names what was given and what may be.
Device parse_device(std::string_view text);
/// What parse_device reads.
std::string device_name(const Device& device);

/// Calls the body of `function` for a device. The caller has chosen the CUDA device (cuda::use_device).
#define MOTLEY_DISPATCH(device, function, ...)              \
  do {                                                      \
    switch ((device).kind) {                                \
      case ::motley::kernels::DeviceKind::cpu:              \
        ::motley::kernels::cpu::function(__VA_ARGS__);      \
        break;                                              \
      case ::motley::kernels::DeviceKind::cuda:             \
        ::motley::kernels::cuda::function(__VA_ARGS__);     \
        break;                                              \
      case ::motley::kernels::DeviceKind::emulated:         \
        ::motley::kernels::emulated::function(__VA_ARGS__); \
        break;                                              \
    }                                                       \
  } while (false)

}  // namespace motley::kernels
