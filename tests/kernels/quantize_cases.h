// What the tests of the quantizers share: every kind of quantization, values, special floats.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "kernels/philox.h"
#include "kernels/quantize.h"

namespace {
using namespace motley::kernels;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

/// Every combination of format and scaling that quantize takes.
inline std::vector<Quantization> all_kinds() {
  std::vector<Quantization> kinds;
  for (const Format f : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2, Format::e2m1}) {
    kinds.push_back({f, Scaling::none});
  }
  for (const Format f : {Format::e4m3, Format::e5m2, Format::e2m1}) {
    for (const Scaling s :
         {Scaling::tensor, Scaling::channel, Scaling::block128x128, Scaling::block1x128, Scaling::mx32}) {
      kinds.push_back({f, s});
    }
  }
  kinds.push_back({Format::e2m1, Scaling::nv16});
  kinds.push_back({Format::e2m1, Scaling::nv16, true});
  return kinds;
}
inline std::string name_of(const Quantization& how) {
  return std::string(format_name(how.format)) + " scaling " + std::to_string(static_cast<int>(how.scaling)) +
         (how.four_over_six ? " 4/6" : "");
}
inline std::vector<float> normals(size_t count, uint64_t seed) {
  RandomStream random({seed, Purpose::data, 0, 0});
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}

}  // namespace
