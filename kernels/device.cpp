#include "kernels/device.h"

#include <charconv>
#include <stdexcept>

namespace motley::kernels {

Device parse_device(std::string_view text) {
  if (text == "cpu") return {DeviceKind::cpu, 0};
  if (text == "emulated") return {DeviceKind::emulated, 0};
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const std::string_view digits = text.substr(kPrefix.size());
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    if (whole && index >= 0 && std::to_string(index) == digits) return {DeviceKind::cuda, index};
  }
  const std::string hint = text == "cuda" || text == "gpu" ? ", as in cuda:0" : "";
  throw std::invalid_argument("device '" + std::string(text) + "' is none of cpu, cuda:N, emulated" + hint);
}

std::string device_name(const Device& device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda:" + std::to_string(device.index);
    case DeviceKind::emulated:
      return "emulated";
  }
  return "?";
}

}  // namespace motley::kernels
