// The devices of this machine, as experiments and commands name them.
#pragma once

#include <string>
#include <vector>

#include "kernels/device.h"

namespace motley::app {

inline constexpr const char* kDeviceForm = "cpu, cuda:N (as in cuda:0) or emulated";

/// Why this machine lacks the device, to follow "and"; empty: it has it.
std::string absence_of(const kernels::Device& device);
/// What to do about it.
inline constexpr const char* kDeviceHint = "\"cpu\" is everywhere; `motley doctor` says what this machine has";
/// All that it has: the CPU, CUDA devices, the emulated one.
std::vector<kernels::Device> devices_here();
/// The device of `--device NAME`. Throws InputError for a name of no such form, and for a device that is not here.
kernels::Device device_argument(const std::string& name);
/// The same; "auto": the first CUDA device, or the CPU.
kernels::Device device_or_best(const std::string& name);

}  // namespace motley::app
