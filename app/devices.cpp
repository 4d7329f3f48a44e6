#include "app/devices.h"

#include <fmt/format.h>

#include <stdexcept>

#include "app/input_error.h"
#include "kernels/device_memory.h"

namespace motley::app {

std::string absence_of(const kernels::Device& device) {
  if (device.kind != kernels::DeviceKind::cuda) return {};
  const int count = kernels::cuda::device_count();
  if (device.index < count) return {};
  if (!kernels::cuda::built()) return "this motley was built without CUDA (-DMOTLEY_CUDA=ON builds it)";
  return count == 0 ? "this machine has no CUDA device that can be used"
                    : fmt::format("this machine has cuda:0 to cuda:{}", count - 1);
}

std::vector<kernels::Device> devices_here() {
  std::vector<kernels::Device> devices{{kernels::DeviceKind::cpu, 0}};
  for (int i = 0; i < kernels::cuda::device_count(); ++i) devices.push_back({kernels::DeviceKind::cuda, i});
  devices.push_back({kernels::DeviceKind::emulated, 0});
  return devices;
}

kernels::Device device_argument(const std::string& name) {
  kernels::Device device;
  try {
    device = kernels::parse_device(name);
  } catch (const std::invalid_argument&) {
    throw InputError({"--device " + name}, "there is no such device", std::string("allowed: ") + kDeviceForm);
  }
  const std::string absence = absence_of(device);
  if (!absence.empty()) throw InputError({"--device " + name}, absence, kDeviceHint);
  return device;
}

kernels::Device device_or_best(const std::string& name) {
  if (name != "auto") return device_argument(name);
  if (kernels::cuda::device_count() > 0) return {kernels::DeviceKind::cuda, 0};
  return {};
}

}  // namespace motley::app
