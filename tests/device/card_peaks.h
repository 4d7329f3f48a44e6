// What cards do at best: dense rates of their vendor's data sheets, by the name that nvidia-smi gives.
#pragma once

#include <string>
#include <string_view>

namespace motley::device_bench {

struct CardPeaks {
  const char* name;                   // part of nvidia-smi's
  double bf16 = 0, fp8 = 0, fp4 = 0;  // TFLOP/s of the matrix units, sums in fp32; 0: no such units
  double bandwidth = 0;               // GB/s
};

inline constexpr CardPeaks kCards[] = {
    {"A100-SXM4-80GB", 312, 0, 0, 2039},
    {"A100-SXM4-40GB", 312, 0, 0, 1555},
    {"A100 80GB PCIe", 312, 0, 0, 1935},
    {"A100-PCIE-40GB", 312, 0, 0, 1555},
    {"RTX 3090", 71, 0, 0, 936},
    {"RTX 4090", 165, 330, 0, 1008},
    {"RTX 5090", 209.5, 419, 1676, 1792},
    {"L4", 121, 242, 0, 300},
    {"L40", 181, 362, 0, 864},
    {"L40S", 362, 733, 0, 864},
    {"H100 80GB HBM3", 989.4, 1978.9, 0, 3352},
    {"H100 PCIe", 756, 1513, 0, 2039},
    {"H100 NVL", 835.5, 1671, 0, 3938},
    {"H200", 989.4, 1978.9, 0, 4800},
    {"H200 NVL", 835.5, 1671, 0, 4800},
    {"GH200", 989.4, 1978.9, 0, 4000},
    {"B200", 2250, 4500, 9000, 8000},
    {"GB200", 2500, 5000, 10000, 8000},
};

/// The entry with the longest name within `card`; null: unknown, and no share of a peak is told.
inline const CardPeaks* find_card(std::string_view card) {
  const CardPeaks* found = nullptr;
  for (const CardPeaks& each : kCards) {
    const std::string_view name = each.name;
    if (card.find(name) == std::string_view::npos) continue;
    if (found == nullptr || name.size() > std::string_view(found->name).size()) found = &each;
  }
  return found;
}

}  // namespace motley::device_bench
