// Scalar number formats: bit-exact conversions, constexpr, for host and device code.
//
// Round to nearest, ties to even. bf16 and fp16 overflow to infinity (fp16 from 65520), so that an overflow is seen;
// fp8 and fp4 saturate, infinities included. Layouts and limits: OCP OFP8 and MX 1.0, IEEE 754-2008 binary16.
// Straight-line selects instead of branches: loops over these functions vectorize. Rules at length: docs/formats.md.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#ifdef __CUDACC__
#define MOTLEY_HD __host__ __device__
#else
#define MOTLEY_HD
#endif

namespace motley::kernels {

/// Every scalar format that a weight, an activation, a cache entry or a scale may have.
enum class Format : uint8_t { fp64, fp32, bf16, fp16, e4m3, e5m2, e2m1, ue8m0 };

/// 1 sign, 8 exponent, 7 mantissa bits. NaN stays NaN (quiet); overflow gives infinity.
MOTLEY_HD constexpr uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
MOTLEY_HD constexpr float bf16_to_float(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

/// 1 sign, 5 exponent, 10 mantissa bits. NaN stays NaN; magnitudes from 65520 give infinity.
MOTLEY_HD constexpr uint16_t fp16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal; adding 0.5 rounds at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
MOTLEY_HD constexpr float fp16_to_float(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t magnitude = code & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude < 0x400u) {  // subnormal: exact product of an integer and 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

/// Two-byte storage types of tensors. Arithmetic is done in float.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  MOTLEY_HD constexpr explicit bf16(float value) : bits(bf16_from_float(value)) {}
  MOTLEY_HD constexpr explicit operator float() const { return bf16_to_float(bits); }
};
struct fp16 {
  uint16_t bits = 0;
  fp16() = default;
  MOTLEY_HD constexpr explicit fp16(float value) : bits(fp16_from_float(value)) {}
  MOTLEY_HD constexpr explicit operator float() const { return fp16_to_float(bits); }
};

namespace detail {
/// The code of a magnitude (the bits of a float without sign) in a format of kExponent exponent and kMantissa mantissa
/// bits; kLargest is the code to saturate at.
template <int kExponent, int kMantissa, uint32_t kLargest>
MOTLEY_HD constexpr uint32_t small_magnitude(uint32_t magnitude) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr int kShift = 23 - kMantissa;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  // One unit in the last place of this float is the format's smallest subnormal: adding it rounds there.
  constexpr uint32_t kRounder = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;
  const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kRounder);
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - kRounder;
  const uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1u) + ((magnitude >> kShift) & 1u);
  const uint32_t normal = (rounded >> kShift) - (static_cast<uint32_t>(127 - kBias) << kMantissa);
  const uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  return code < kLargest ? code : kLargest;
}
/// The finite value of a magnitude code, as the bits of a float.
template <int kExponent, int kMantissa>
MOTLEY_HD constexpr uint32_t small_value(uint32_t magnitude) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr float kSmallest = std::bit_cast<float>(static_cast<uint32_t>(128 - kBias - kMantissa) << 23);
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * kSmallest);
  const uint32_t normal = (magnitude << (23 - kMantissa)) + (static_cast<uint32_t>(127 - kBias) << 23);
  return magnitude < (1u << kMantissa) ? subnormal : normal;
}
}  // namespace detail

/// Codes of a format as plain 32-bit integers, so that loops stay in one register width. Named functions follow.
template <Format F>
MOTLEY_HD constexpr uint32_t encode(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const bool nan = magnitude > 0x7f800000u;
  if constexpr (F == Format::fp32) {
    return bits;
  } else if constexpr (F == Format::bf16) {
    return bf16_from_float(value);
  } else if constexpr (F == Format::fp16) {
    return fp16_from_float(value);
  } else if constexpr (F == Format::e4m3) {
    return (bits >> 24 & 0x80u) | (nan ? 0x7fu : detail::small_magnitude<4, 3, 0x7e>(magnitude));
  } else if constexpr (F == Format::e5m2) {
    return (bits >> 24 & 0x80u) | (nan ? 0x7eu : detail::small_magnitude<5, 2, 0x7b>(magnitude));
  } else if constexpr (F == Format::e2m1) {
    return nan ? 7u : ((bits >> 28 & 8u) | detail::small_magnitude<2, 1, 7>(magnitude));
  } else {
    static_assert(F == Format::ue8m0);
    const uint32_t exponent = magnitude >> 23;
    return nan ? 0xffu : (exponent < 0xfeu ? exponent : 0xfeu);
  }
}
template <Format F>
MOTLEY_HD constexpr float decode(uint32_t code) {
  if constexpr (F == Format::fp32) {
    return std::bit_cast<float>(code);
  } else if constexpr (F == Format::bf16) {
    return bf16_to_float(static_cast<uint16_t>(code));
  } else if constexpr (F == Format::fp16) {
    return fp16_to_float(static_cast<uint16_t>(code));
  } else if constexpr (F == Format::e4m3) {
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t value = magnitude == 0x7fu ? 0x7fc00000u : detail::small_value<4, 3>(magnitude);
    return std::bit_cast<float>((code & 0x80u) << 24 | value);
  } else if constexpr (F == Format::e5m2) {
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t special = 0x7f800000u | (magnitude & 3u) << 21;
    const uint32_t value = magnitude >= 0x7cu ? special : detail::small_value<5, 2>(magnitude);
    return std::bit_cast<float>((code & 0x80u) << 24 | value);
  } else if constexpr (F == Format::e2m1) {
    return std::bit_cast<float>((code & 8u) << 28 | detail::small_value<2, 1>(code & 7u));
  } else {
    static_assert(F == Format::ue8m0);
    const uint32_t magnitude = code & 0xffu;  // 2^-127 is a subnormal float
    const uint32_t value = magnitude == 0u ? 0x00400000u : magnitude << 23;
    return std::bit_cast<float>(magnitude == 0xffu ? 0x7fc00000u : value);
  }
}

namespace detail {
/// decode(encode(value)) without the code: a power of two is added whose unit in the last place is the format's there.
template <int kExponent, int kMantissa, bool kHasNan>
MOTLEY_HD constexpr float small_rounded(float value, float largest) {
  constexpr int32_t kSmallestNormal = (129 - (1 << (kExponent - 1))) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  const auto limit = std::bit_cast<int32_t>(largest);
  const int32_t clamped = magnitude < limit ? magnitude : limit;
  const int32_t power = clamped & 0x7f800000;
  const auto unit =
      std::bit_cast<float>((power > kSmallestNormal ? power : kSmallestNormal) + ((23 - kMantissa) << 23));
  const auto rounded = std::bit_cast<uint32_t>((std::bit_cast<float>(clamped) + unit) - unit);
  const bool nan = magnitude > 0x7f800000;
  if constexpr (kHasNan) return std::bit_cast<float>((bits & 0x80000000u) | (nan ? 0x7fc00000u : rounded));
  return std::bit_cast<float>((nan ? 0u : bits & 0x80000000u) | rounded);
}
}  // namespace detail

/// decode<F>(encode<F>(value)), in fewer steps for the small formats.
template <Format F>
MOTLEY_HD constexpr float rounded(float value) {
  if constexpr (F == Format::e4m3) {
    return detail::small_rounded<4, 3, true>(value, 448.0f);
  } else if constexpr (F == Format::e5m2) {
    return detail::small_rounded<5, 2, true>(value, 57344.0f);
  } else if constexpr (F == Format::e2m1) {
    return detail::small_rounded<2, 1, false>(value, 6.0f);
  } else {
    return decode<F>(encode<F>(value));
  }
}

/// 1 sign, 4 exponent, 3 mantissa bits, no infinity (e4m3fn). Saturates at 448; NaN is 0x7f or 0xff.
MOTLEY_HD constexpr uint8_t e4m3_from_float(float value) { return static_cast<uint8_t>(encode<Format::e4m3>(value)); }
MOTLEY_HD constexpr float e4m3_to_float(uint8_t code) { return decode<Format::e4m3>(code); }
/// 1 sign, 5 exponent, 2 mantissa bits. Saturates at 57344; the codes of infinity and NaN decode as such.
MOTLEY_HD constexpr uint8_t e5m2_from_float(float value) { return static_cast<uint8_t>(encode<Format::e5m2>(value)); }
MOTLEY_HD constexpr float e5m2_to_float(uint8_t code) { return decode<Format::e5m2>(code); }
/// 1 sign, 2 exponent, 1 mantissa bit, in the low half of a byte. Saturates at 6; NaN, which it lacks, gives +6 as in
/// PTX's cvt.satfinite.
MOTLEY_HD constexpr uint8_t e2m1_from_float(float value) { return static_cast<uint8_t>(encode<Format::e2m1>(value)); }
MOTLEY_HD constexpr float e2m1_to_float(uint8_t code) { return decode<Format::e2m1>(code); }
/// A power of two, 2^-127 to 2^127: no sign, no zero. Takes the exponent of the magnitude, so it rounds down (the FLOOR
/// rule of MX); saturates at both ends; NaN is 0xff.
MOTLEY_HD constexpr uint8_t ue8m0_from_float(float value) { return static_cast<uint8_t>(encode<Format::ue8m0>(value)); }
MOTLEY_HD constexpr float ue8m0_to_float(uint8_t code) { return decode<Format::ue8m0>(code); }

/// The value nearest to `value` in that format, by the rules above.
MOTLEY_HD constexpr float round_to_format(float value, Format format) {
  switch (format) {
    case Format::bf16:
      return rounded<Format::bf16>(value);
    case Format::fp16:
      return rounded<Format::fp16>(value);
    case Format::e4m3:
      return rounded<Format::e4m3>(value);
    case Format::e5m2:
      return rounded<Format::e5m2>(value);
    case Format::e2m1:
      return rounded<Format::e2m1>(value);
    case Format::ue8m0:
      return rounded<Format::ue8m0>(value);
    default:
      return value;
  }
}
/// The largest finite magnitude of fp8 and fp4 formats, which block scales map to.
MOTLEY_HD constexpr float largest_value(Format format) {
  switch (format) {
    case Format::e4m3:
      return 448.0f;
    case Format::e5m2:
      return 57344.0f;
    case Format::e2m1:
      return 6.0f;
    case Format::fp16:
      return 65504.0f;
    case Format::bf16:
      return 0x1.fep127f;
    case Format::ue8m0:
      return 0x1p127f;
    default:
      return 0x1.fffffep127f;
  }
}
constexpr std::string_view format_name(Format format) {
  switch (format) {
    case Format::fp64:
      return "fp64";
    case Format::fp32:
      return "fp32";
    case Format::bf16:
      return "bf16";
    case Format::fp16:
      return "fp16";
    case Format::e4m3:
      return "e4m3";
    case Format::e5m2:
      return "e5m2";
    case Format::e2m1:
      return "e2m1";
    case Format::ue8m0:
      return "ue8m0";
  }
  return "?";
}

}  // namespace motley::kernels
