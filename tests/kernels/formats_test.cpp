#include "kernels/formats.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace motley::kernels;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(e4m3_from_float(448.0f) == 0x7e && e4m3_from_float(464.1f) == 0x7e && e4m3_from_float(-kInf) == 0xfe);
static_assert(e4m3_from_float(kNan) == 0x7f && e4m3_from_float(-kNan) == 0xff);
static_assert(e4m3_to_float(0x01) == 0x1p-9f && e4m3_to_float(0x08) == 0x1p-6f && e4m3_to_float(0x38) == 1.0f);
static_assert(e5m2_from_float(57344.0f) == 0x7b && e5m2_from_float(kInf) == 0x7b && e5m2_to_float(0xfc) == -kInf);
static_assert(e5m2_to_float(0x01) == 0x1p-16f && e5m2_to_float(0x3c) == 1.0f);
static_assert(e2m1_from_float(kNan) == 7 && e2m1_from_float(-kNan) == 7 && e2m1_from_float(-kInf) == 15);
static_assert(ue8m0_from_float(0.0f) == 0 && ue8m0_from_float(kInf) == 0xfe && ue8m0_from_float(kNan) == 0xff);
static_assert(ue8m0_to_float(0) == 0x1p-127f && ue8m0_to_float(127) == 1.0f && ue8m0_to_float(254) == 0x1p127f);
static_assert(fp16_from_float(65519.0f) == 0x7bff && fp16_from_float(65520.0f) == 0x7c00);
static_assert(round_to_format(1.0f + 0x1p-8f, Format::bf16) == 1.0f && round_to_format(3.3f, Format::fp32) == 3.3f);
static_assert(largest_value(Format::e4m3) == e4m3_to_float(0x7e) && largest_value(Format::e5m2) == e5m2_to_float(0x7b));
static_assert(largest_value(Format::e2m1) == e2m1_to_float(7) && largest_value(Format::bf16) == bf16_to_float(0x7f7f));
static_assert(format_name(Format::e4m3) == "e4m3" && format_name(Format::ue8m0) == "ue8m0");

/// A format with sign bit `sign`, finite magnitude codes 0..largest, saturating.
struct Small {
  Format format;
  uint32_t sign, largest;
  uint8_t (*from)(float);
  float (*to)(uint8_t);
};
const Small kSmall[] = {{Format::e4m3, 0x80, 0x7e, e4m3_from_float, e4m3_to_float},
                        {Format::e5m2, 0x80, 0x7b, e5m2_from_float, e5m2_to_float},
                        {Format::e2m1, 0x8, 0x7, e2m1_from_float, e2m1_to_float}};

/// The nearest code by search over the decoded values in double; ties to the even code; saturating.
uint32_t nearest(const Small& f, float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  uint32_t low = 0;
  while (low < f.largest && f.to(static_cast<uint8_t>(low + 1)) <= magnitude) ++low;
  uint32_t code = low;
  if (low < f.largest) {
    const double below = magnitude - f.to(static_cast<uint8_t>(low)),
                 above = f.to(static_cast<uint8_t>(low + 1)) - magnitude;
    code = below < above ? low : above < below ? low + 1 : low + (low & 1);
  }
  return code | (std::signbit(value) ? f.sign : 0);
}

/// IEEE 754 rounding to binary16 in double arithmetic.
double fp16_reference(float value) {
  const double x = value;
  if (std::fabs(x) >= 65520.0) return std::copysign(kInf, x);
  if (x == 0.0) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x) - 10, -24));
  return std::copysign(std::nearbyint(x / unit) * unit, x);
}

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

/// Floats of every sign and exponent, with mantissas at and around the places where formats round.
std::vector<float> probes() {
  std::vector<float> out;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      out.push_back(std::bit_cast<float>(high << 16 | low));
  }
  return out;
}

}  // namespace

TEST_CASE("small formats: known values", "[formats]") {
  const float e2m1[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (uint8_t code = 0; code < 8; ++code) CHECK(e2m1_to_float(code) == e2m1[code]);
  // Every code by the formula sign * 2^(e - bias) * (1 + m / 2^M), in double.
  for (int code = 0; code < 256; ++code) {
    const double sign = code & 0x80 ? -1.0 : 1.0;
    const int e4 = code >> 3 & 15, m3 = code & 7, e5 = code >> 2 & 31, m2 = code & 3;
    const double e4m3 = e4 == 0 ? std::ldexp(m3, -9) : std::ldexp(8 + m3, e4 - 10);
    const double e5m2 = e5 == 0 ? std::ldexp(m2, -16) : std::ldexp(4 + m2, e5 - 17);
    INFO("code " << code);
    if ((code & 0x7f) == 0x7f)
      CHECK(std::isnan(e4m3_to_float(static_cast<uint8_t>(code))));
    else
      CHECK(e4m3_to_float(static_cast<uint8_t>(code)) == sign * e4m3);
    if (e5 == 31)
      CHECK((m2 == 0 ? std::isinf(e5m2_to_float(static_cast<uint8_t>(code)))
                     : std::isnan(e5m2_to_float(static_cast<uint8_t>(code)))));
    else
      CHECK(e5m2_to_float(static_cast<uint8_t>(code)) == sign * e5m2);
  }
}

TEST_CASE("small formats: every finite code survives the round trip", "[formats]") {
  for (const Small& f : kSmall) {
    for (uint32_t code = 0; code <= f.largest; ++code) {
      for (const uint32_t signed_code : {code, code | f.sign}) {
        CHECK(f.from(f.to(static_cast<uint8_t>(signed_code))) == signed_code);
      }
    }
  }
  CHECK(e4m3_from_float(e4m3_to_float(0x7f)) == 0x7f);
  CHECK(e4m3_from_float(e4m3_to_float(0xff)) == 0xff);
  for (const uint8_t code : {0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff})
    CHECK(std::isnan(e5m2_to_float(e5m2_from_float(e5m2_to_float(code)))));
  for (int code = 0; code < 256; ++code) CHECK(ue8m0_from_float(ue8m0_to_float(static_cast<uint8_t>(code))) == code);
}

TEST_CASE("small formats: ties go to even, their neighbours to the nearest", "[formats]") {
  for (const Small& f : kSmall) {
    for (uint32_t code = 0; code < f.largest; ++code) {
      const float tie =
          (f.to(static_cast<uint8_t>(code)) + f.to(static_cast<uint8_t>(code + 1))) / 2;  // exact in float
      INFO(format_name(f.format) << " code " << code);
      CHECK(f.from(tie) == code + (code & 1));
      CHECK(f.from(-tie) == ((code + (code & 1)) | f.sign));
      CHECK(f.from(std::nextafter(tie, 0.0f)) == code);
      CHECK(f.from(std::nextafter(tie, kInf)) == code + 1);
    }
  }
}

TEST_CASE("small formats: every exponent against the nearest code", "[formats]") {
  size_t wrong = 0;
  for (const float value : probes()) {
    for (const Small& f : kSmall) {
      if (std::isnan(value)) {
        wrong += f.format == Format::e2m1 ? f.from(value) != 7 : !std::isnan(f.to(f.from(value)));
        continue;
      }
      const uint32_t want = nearest(f, value);
      wrong += f.from(value) != want;
      wrong += !same(round_to_format(value, f.format), f.to(static_cast<uint8_t>(want)));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("ue8m0 takes the exponent", "[formats]") {
  size_t wrong = 0;
  for (const float value : probes()) {
    if (std::isnan(value)) {
      wrong += ue8m0_from_float(value) != 0xff;
      continue;
    }
    const int exponent = value == 0.0f ? -127 : std::isinf(value) ? 127 : std::max(-127, std::ilogb(value));
    wrong += ue8m0_from_float(value) != exponent + 127;
  }
  CHECK(wrong == 0);
}

TEST_CASE("fp16 and bf16: every code survives, every rounding is IEEE's", "[formats]") {
  size_t wrong = 0;
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto code = static_cast<uint16_t>(i);
    const float half = fp16_to_float(code), brain = bf16_to_float(code);
    const int e = code >> 10 & 31, m = code & 1023;
    if (e < 31) wrong += half != std::copysign(e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25), half);
    wrong += std::signbit(half) != (code >> 15 == 1);
    wrong += std::isnan(half) ? !std::isnan(fp16_to_float(fp16_from_float(half))) : fp16_from_float(half) != code;
    wrong += std::isnan(brain) ? !std::isnan(bf16_to_float(bf16_from_float(brain))) : bf16_from_float(brain) != code;
    if (e == 31) wrong += m == 0 ? !std::isinf(half) : !std::isnan(half);
    if (e < 31 && code != 0x7bff && code < 0x7bff) {  // ties of fp16
      const float tie = (half + fp16_to_float(static_cast<uint16_t>(code + 1))) / 2;
      wrong += fp16_from_float(tie) != code + (code & 1);
    }
  }
  for (const float value : probes()) {
    if (std::isnan(value)) {
      wrong += !std::isnan(round_to_format(value, Format::fp16)) || !std::isnan(round_to_format(value, Format::bf16));
      continue;
    }
    wrong += !same(round_to_format(value, Format::fp16), static_cast<float>(fp16_reference(value)));
    // bf16: the nearer of truncation and its successor in magnitude, the even one in a tie.
    const uint32_t bits = std::bit_cast<uint32_t>(value), low = bits & 0xffff0000u, rest = bits & 0xffffu;
    const uint32_t want = rest > 0x8000u || (rest == 0x8000u && (low & 0x10000u) != 0) ? low + 0x10000u : low;
    wrong += std::bit_cast<uint32_t>(round_to_format(value, Format::bf16)) != want;
  }
  CHECK(wrong == 0);
  CHECK(fp16_from_float(65519.996f) == 0x7bff);
  CHECK(fp16_from_float(-65520.0f) == 0xfc00);
  CHECK(bf16_from_float(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(fp16_from_float(0x1p-25f) == 0);
  CHECK(fp16_from_float(std::nextafter(0x1p-25f, 1.0f)) == 1);
  CHECK(fp16_from_float(-0.0f) == 0x8000);
  CHECK(bf16_from_float(-0.0f) == 0x8000);
}
