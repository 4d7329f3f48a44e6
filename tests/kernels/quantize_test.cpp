#include "kernels/quantize.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/kernels/quantize_cases.h"

using namespace motley::kernels;

namespace {

std::vector<float> round_trip(const std::vector<float>& x, int64_t rows, int64_t cols, const Quantization& how,
                              float amax = 0) {
  std::vector<float> out(x.size());
  dequantize(quantize(x, rows, cols, how, amax), out);
  return out;
}
double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}
/// Half a unit in the last place relative to the value, and the spacing at zero relative to the largest value.
double relative_step(Format f) {
  return f == Format::fp32   ? 0
         : f == Format::bf16 ? 0x1p-8
         : f == Format::fp16 ? 0x1p-11
         : f == Format::e4m3 ? 0x1p-4
         : f == Format::e5m2 ? 0x1p-3
                             : 0.25;
}
double absolute_step(Format f) {
  return f == Format::e4m3 ? 0x1p-10 : f == Format::e5m2 ? 0x1p-17 : f == Format::e2m1 ? 0.25 : 0x1p-25;
}

}  // namespace

TEST_CASE("quantize: ragged shapes stay within half a step of their block", "[quantize]") {
  for (const auto& [rows, cols] :
       {std::pair{0, 5}, {5, 0}, {1, 1}, {3, 15}, {2, 16}, {7, 33}, {130, 129}, {3, 259}, {257, 31}}) {
    std::vector<float> x = normals(static_cast<size_t>(rows * cols), 5);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<float>(1 + i % 5) * 0.3f;
    float amax = largest_magnitude(x);
    for (const Quantization& how : all_kinds()) {
      INFO(name_of(how) << " [" << rows << ", " << cols << "]");
      const std::vector<float> y = round_trip(x, rows, cols, how);
      // The error of x is at most max(|x| u, spacing at zero * scale); the scale is at most amax / largest for fp32
      // scales, a power of two up to 2x above it for mx32, which may also saturate at 1/2 of the spacing's top (1/8 of
      // the value for e4m3, 1/4 for e2m1 and e5m2); nv16 adds its block scale's own rounding (2^-4 relative).
      const bool plain = how.scaling == Scaling::none;
      const double slack = plain ? 1 : how.scaling == Scaling::mx32 || how.scaling == Scaling::nv16 ? 2 : 1.0001;
      const double scale = plain ? 1 : amax / largest_value(how.format);
      size_t wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double bound =
            std::max(std::fabs(x[i]) * relative_step(how.format), scale * absolute_step(how.format)) * slack;
        const bool saturates = plain && std::fabs(x[i]) > largest_value(how.format);
        wrong += !saturates && !(std::fabs(static_cast<double>(y[i]) - x[i]) <= bound);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("quantize: zeros give zeros and keep their sign", "[quantize]") {
  for (const Quantization& how : all_kinds()) {
    INFO(name_of(how));
    std::vector<float> x(3 * 300, 0.0f);
    x[1] = -0.0f;
    std::vector<float> y = round_trip(x, 3, 300, how);
    for (size_t i = 0; i < x.size(); ++i) REQUIRE((y[i] == 0.0f && std::signbit(y[i]) == std::signbit(x[i])));
    x[299] = 1.0f;  // zero blocks beside a block that is not
    y = round_trip(x, 3, 300, how);
    for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == Approx(x[i]).margin(0));
  }
}

TEST_CASE("quantize: infinity, NaN, largest and subnormal inputs", "[quantize]") {
  for (const Quantization& how : all_kinds()) {
    INFO(name_of(how));
    const bool small = how.format == Format::e4m3 || how.format == Format::e5m2 || how.format == Format::e2m1;
    std::vector<float> x = normals(2 * 256, 9);
    x[3] = kNan;
    x[300] = -kInf;
    const std::vector<float> y = round_trip(x, 2, 256, how);
    const bool block_nan = how.scaling == Scaling::mx32 || how.scaling == Scaling::nv16;
    if (how.format == Format::e2m1 && !block_nan)
      CHECK(y[3] > 0);  // the format has no NaN: +6
    else
      CHECK(std::isnan(y[3]));
    CHECK(std::isnan(y[4]) == block_nan);
    CHECK_FALSE(std::isnan(y[200]));
    CHECK(y[300] < 0);
    if (small && how.scaling == Scaling::none) CHECK(y[300] == -largest_value(how.format));
    if (!small) CHECK(y[300] == -kInf);
    for (size_t i = 256; i < 512; ++i) REQUIRE_FALSE(std::isnan(y[i]));
    // The largest float comes back, though scaled and rounded twice; mx32 alone saturates below it (FLOOR rule).
    const std::vector<float> big = round_trip({kMax, -kMax, 1.0f, 0.0f}, 1, 4, how);
    if (how.scaling == Scaling::mx32)
      CHECK(big[0] >= 0.75f * kMax);
    else if (how.scaling != Scaling::none)
      CHECK((big[0] >= 0.999999f * kMax && big[0] <= kMax));
    CHECK(big[1] == -big[0]);
    CHECK(big[3] == 0.0f);
    const float tiny = std::numeric_limits<float>::denorm_min();
    for (const float v : round_trip({tiny, -tiny, 0.0f, 0x1p-130f}, 1, 4, how)) CHECK(std::fabs(v) <= 0x1p-129f);
  }
}

TEST_CASE("quantize: mx by hand", "[quantize]") {
  // amax 5: floor(log2 5) = 2, minus emax 2 of e2m1: scale 1. 0.7 -> 0.5, 2.5 -> 2 (tie to even), 5 -> 4 (tie).
  std::vector<float> x(40, 0.0f);
  x[0] = 5.0f;
  x[1] = 0.7f;
  x[2] = -2.5f;
  x[32] = 7.0f;  // scale 1 as well: saturates at 6, the FLOOR rule
  x[33] = 0.24f;
  const QuantizedMatrix m = quantize(x, 1, 40, {Format::e2m1, Scaling::mx32});
  CHECK(m.block_codes == std::vector<uint8_t>{127, 127});
  CHECK(m.codes.size() == 20);
  CHECK(m.codes[0] == (0x6 | 0x1 << 4));
  CHECK(m.codes[1] == 0xc);
  CHECK(m.codes[16] == 0x7);
  CHECK(m.scales.empty());
  // e4m3: amax 1000 has exponent 9, minus 8: scale 2. 1000 / 2 = 500 saturates at 448, so 896.
  const std::vector<float> y = round_trip({1000.0f, 3.1f}, 1, 2, {Format::e4m3, Scaling::mx32});
  CHECK(y[0] == 896.0f);
  CHECK(y[1] == 3.0f);  // 1.55 -> 1.5
  CHECK(quantize(std::vector<float>{0.0f}, 1, 1, {Format::e4m3, Scaling::mx32}).block_codes[0] == 0);
  CHECK(quantize(std::vector<float>{kNan, 1.0f}, 1, 2, {Format::e4m3, Scaling::mx32}).block_codes[0] == 0xff);
  CHECK(quantize(std::vector<float>{0x1p-149f}, 1, 1, {Format::e5m2, Scaling::mx32}).block_codes[0] == 0);
  CHECK(quantize(std::vector<float>{kMax}, 1, 1, {Format::e2m1, Scaling::mx32}).block_codes[0] == 252);
}

TEST_CASE("quantize: nvfp4 by hand", "[quantize]") {
  // amax 2688: tensor scale 1. Block 0: 2688 / 6 = 448. Block 1: amax 7 / 6 = 1.1667 -> 1.125 in e4m3 (step 0.125);
  // 7 / 1.125 = 6.2 -> 6 (6.75), 1.5 / 1.125 = 1.33 -> 1.5 (1.6875), -3 / 1.125 = -2.67 -> -3 (-3.375).
  std::vector<float> x(48, 0.0f);
  x[0] = 2688.0f;
  x[16] = 7.0f;
  x[17] = 1.5f;
  x[18] = -3.0f;
  x[32] = 1e-6f;  // far below: the smallest e4m3 scale 2^-9, the element rounds to 0
  const QuantizedMatrix m = quantize(x, 1, 48, {Format::e2m1, Scaling::nv16});
  CHECK(m.scales == std::vector<float>{1.0f});
  CHECK(m.block_codes == std::vector<uint8_t>{0x7e, 0x39, 0x01});
  std::vector<float> y(48);
  dequantize(m, y);
  CHECK(y[0] == 2688.0f);
  CHECK(y[16] == 6.75f);
  CHECK(y[17] == 1.6875f);
  CHECK(y[18] == -3.375f);
  CHECK(y[32] == 0.0f);
  CHECK(quantize(std::vector<float>(32, 0.0f), 2, 16, {Format::e2m1, Scaling::nv16}).scales[0] == 1.0f);
  // The scale of a group that shares 26880: 10; the block's scale becomes 2688 / 6 / 10 = 44.8 -> 44.
  const QuantizedMatrix shared = quantize(x, 1, 48, {Format::e2m1, Scaling::nv16}, 26880.0f);
  CHECK(shared.scales[0] == 10.0f);
  CHECK(e4m3_to_float(shared.block_codes[0]) == 44.0f);
}

TEST_CASE("quantize: the nvfp4 tensor scale is never subnormal", "[quantize]") {
  // g = 2^-126, s at its floor 2^-9: the element is 0.5 and exact. With g = amax / 2688 = 3 * 2^-149 it would be 1.6 %
  // off.
  CHECK(round_trip({0x1p-136f, 0.0f}, 1, 2, {Format::e2m1, Scaling::nv16}) == std::vector<float>{0x1p-136f, 0.0f});
}

TEST_CASE("quantize: four over six by hand", "[quantize]") {
  // Tensor scale 1 by shared_amax. Values 4, 3, 2, 1 (repeated): mapped to 6 the scale is 4/6 -> 0.6875, mapped to 4 it
  // is 1 and every value is exact.
  std::vector<float> x(16);
  for (size_t i = 0; i < 16; ++i) x[i] = static_cast<float>(4 - i % 4);
  const QuantizedMatrix m = quantize(x, 1, 16, {Format::e2m1, Scaling::nv16, true}, 2688.0f);
  CHECK(e4m3_to_float(m.block_codes[0]) == 1.0f);
  CHECK(round_trip(x, 1, 16, {Format::e2m1, Scaling::nv16, true}, 2688.0f) == x);
  CHECK(round_trip(x, 1, 16, {Format::e2m1, Scaling::nv16}, 2688.0f) != x);
  // amax 2100: the map to 4 wants scale 525, clamped at 448, and still wins on its own error: 1790 is 4 * 448 = 1792
  // and 2100 becomes 4 * 448 or 6 * 448; mapped to 6 (scale 352) 1790 becomes 4 * 352 or 6 * 352, much worse.
  std::vector<float> high(16, 1790.0f);
  high[0] = 2100.0f;
  const QuantizedMatrix clamped = quantize(high, 1, 16, {Format::e2m1, Scaling::nv16, true}, 2688.0f);
  CHECK(e4m3_to_float(clamped.block_codes[0]) == 448.0f);
  // amax 2688 itself: mapped to 6 it is exact, and the clamped map to 4 gives the same codes: a tie, stays.
  CHECK(round_trip(std::vector<float>(16, 2688.0f), 1, 16, {Format::e2m1, Scaling::nv16, true})[0] == 2688.0f);
}

TEST_CASE("quantize: four over six never errs more than plain", "[quantize]") {
  size_t better = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<float> x = normals(16 * 16, seed);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(static_cast<float>(seed % 60) - 30.0f);
    const std::vector<float> plain = round_trip(x, 16, 16, {Format::e2m1, Scaling::nv16});
    const std::vector<float> chosen = round_trip(x, 16, 16, {Format::e2m1, Scaling::nv16, true});
    for (size_t b = 0; b < 16; ++b) {
      const auto part = [&](const std::vector<float>& v) {
        return std::vector<float>(v.begin() + static_cast<long>(16 * b), v.begin() + static_cast<long>(16 * b + 16));
      };
      const double before = squared_error(part(x), part(plain)), after = squared_error(part(x), part(chosen));
      REQUIRE(after <= before);
      better += after < before;
    }
  }
  CHECK(better > 500);  // of 3200 blocks
}

TEST_CASE("quantize: fp8 blocks by hand", "[quantize]") {
  std::vector<float> x(130 * 140, 0.0f);
  x[0] = 448.0f * 2;           // block (0, 0): scale 2
  x[1] = 3.3f;                 // 1.65 -> 1.625
  x[129 * 140 + 139] = 44.8f;  // block (1, 1): scale 0.1
  const QuantizedMatrix m = quantize(x, 130, 140, {Format::e4m3, Scaling::block128x128});
  REQUIRE(m.scales.size() == 4);
  CHECK(m.scales[0] == 2.0f);
  CHECK(m.scales[1] == 1e-10f / 448.0f);
  CHECK(m.scales[3] == 44.8f / 448.0f);
  CHECK(m.codes[0] == 0x7e);
  CHECK(e4m3_to_float(m.codes[1]) == 1.625f);
  const QuantizedMatrix rows = quantize(x, 130, 140, {Format::e4m3, Scaling::block1x128});
  CHECK(rows.scales.size() == 260);
  CHECK(rows.scales[0] == 2.0f);
  CHECK(rows.scales[259] == 44.8f / 448.0f);
  const QuantizedMatrix channel = quantize(x, 130, 140, {Format::e4m3, Scaling::channel});
  CHECK(channel.scales.size() == 130);
  CHECK(channel.scales[129] == 44.8f / 448.0f);
  CHECK(quantize(x, 130, 140, {Format::e4m3, Scaling::tensor}).scales == std::vector<float>{2.0f});
  CHECK(quantize(x, 130, 140, {Format::e4m3, Scaling::tensor}, 1792.0f).scales == std::vector<float>{4.0f});
}

TEST_CASE("quantize: quantized values are fixed points of their own scales", "[quantize]") {
  const std::vector<float> x = normals(5 * 300, 21);
  for (const Quantization& how : all_kinds()) {
    const QuantizedMatrix m = quantize(x, 5, 300, how);
    std::vector<float> codes(x.size()), values(x.size());
    decode_codes(m, codes);
    dequantize(m, values);
    INFO(name_of(how));
    if (m.scales.size() == 1) {
      for (size_t i = 0; i < x.size(); ++i) REQUIRE(values[i] == codes[i] * m.scales[0]);
    }
    if (m.scales.empty()) {
      CHECK(values == codes);
      CHECK(round_trip(values, 5, 300, how) == values);
    }
  }
}

TEST_CASE("quantize: activations give the codes of their row alone", "[quantize]") {
  const int64_t cols = 307;
  for (Quantization how : all_kinds()) {
    if (how.scaling == Scaling::block128x128) {
      CHECK_THROWS_AS(check_activation(how), std::invalid_argument);
      continue;
    }
    INFO(name_of(how));
    check_activation(how);
    for (const float special : {1.0f, 0.0f, kInf, kNan}) {
      std::vector<float> x = normals(static_cast<size_t>(cols), 33);
      x[17] *= special;
      std::fill_n(x.begin() + 128, 64, 0.0f);
      const QuantizedMatrix m = quantize(x, 1, cols, how);
      std::vector<float> want(x.size());
      decode_codes(m, want);
      std::vector<float> scales(3, -1.0f);
      const float factor = quantize_activation(x.data(), cols, how, scales.data());
      size_t wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        wrong +=
            std::isnan(want[i]) ? !std::isnan(x[i]) : std::bit_cast<uint32_t>(want[i]) != std::bit_cast<uint32_t>(x[i]);
      }
      CHECK(wrong == 0);
      if (how.scaling == Scaling::block1x128)
        CHECK(scales == m.scales);
      else
        CHECK(factor == (m.scales.empty() ? 1.0f : m.scales[0]));
    }
  }
}

TEST_CASE("quantize: what cannot be is refused", "[quantize]") {
  const std::vector<float> x(32, 1.0f);
  CHECK_THROWS_AS(quantize(x, 1, 32, {Format::e4m3, Scaling::nv16}), std::invalid_argument);
  CHECK_THROWS_AS(quantize(x, 1, 32, {Format::bf16, Scaling::channel}), std::invalid_argument);
  CHECK_THROWS_AS(quantize(x, 1, 32, {Format::ue8m0, Scaling::none}), std::invalid_argument);
  CHECK_THROWS_AS(quantize(x, 1, 32, {Format::fp64, Scaling::none}), std::invalid_argument);
  CHECK_THROWS_AS(quantize(x, 1, 32, {Format::e4m3, Scaling::mx32, true}), std::invalid_argument);
  CHECK_THROWS_AS(quantize(x, 2, 32, {Format::e4m3, Scaling::mx32}), std::invalid_argument);
}

TEST_CASE("quantize: largest magnitude", "[quantize]") {
  CHECK(largest_magnitude({}) == 0.0f);
  CHECK(largest_magnitude(std::vector<float>{1.0f, -3.0f, kNan}) == 3.0f);
  CHECK(largest_magnitude(std::vector<float>{-kInf}) == kMax);
}
