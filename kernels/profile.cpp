#include "kernels/profile.h"

#include <string>

namespace motley::kernels {
namespace {

constexpr Quantization kPlainFp32{Format::fp32, Scaling::none};
constexpr Quantization kPlainBf16{Format::bf16, Scaling::none};
constexpr Quantization kPlainFp16{Format::fp16, Scaling::none};
constexpr Quantization kFp8Weight{Format::e4m3, Scaling::block128x128};
constexpr Quantization kFp8Activation{Format::e4m3, Scaling::block1x128};
constexpr Quantization kFp8Channel{Format::e4m3, Scaling::channel};
constexpr Quantization kNvfp4{Format::e2m1, Scaling::nv16};
constexpr Quantization kNvfp4FourOverSix{Format::e2m1, Scaling::nv16, true};
constexpr Quantization kMxfp8{Format::e4m3, Scaling::mx32};
constexpr Quantization kMxfp4{Format::e2m1, Scaling::mx32};

// Reduction tiles are modelled, not measured: one number per architecture, so that equal formats on different
// architectures sum in different orders. H100 and H200 are both SM90, and so share theirs.
constexpr int64_t kTileSm80 = 32, kTileSm90 = 64, kTileSm100 = 128, kTileSm120 = 16;

constexpr const char* kStitchBf16 = "formats: modal-projects/stitch configs (BF16, KV fp8_e4m3); tiling modelled";
constexpr const char* kStitchFp8 =
    "formats: modal-projects/stitch configs and DeepSeek-V3 inference/kernel.py (fp32 scales); tiling modelled";
constexpr const char* kAccumulate14 =
    "as h100-fp8; accumulation modelled after the DeepSeek-V3 report 3.3.2 and 3.5.2, SageAttention2 (fp22) and "
    "Fasi et al. 2021 (truncation); promotion every 128 as DeepGEMM";
constexpr const char* kFastAccumulate14 =
    "scales per token and channel (vLLM's cutlass_scaled_mm); accumulation as h100-fp8-accumulate14, never promoted "
    "(cuBLASLt's fast accumulation)";
constexpr const char* kStitchNvfp4 =
    "formats: modal-projects/stitch configs (W4A16, 4-over-6 by MSE) and NVIDIA TransformerEngine docs; tiling "
    "modelled";
constexpr const char* kW4a4 =
    "formats: NVIDIA TransformerEngine docs; second-level activation scale per token; tiling modelled";

NumericProfile preset(const char* name, Quantization weight, Quantization activation, Format kv_cache, int64_t k_tile,
                      const char* hardware, const char* source) {
  NumericProfile profile;
  profile.name = name;
  profile.weight = weight;
  profile.activation = activation;
  profile.kv_cache = kv_cache;
  profile.k_tile = k_tile;
  profile.hardware = hardware;
  profile.source = source;
  return profile;
}
/// `of` with Hopper's own accumulation, promoted to fp32 every `promotion` products (0: never).
NumericProfile accumulate14(NumericProfile of, const char* name, int64_t promotion, const char* source) {
  of.name = name;
  of.accumulation = Accumulation::hopper_fp8;
  of.k_tile = promotion;
  of.source = source;
  return of;
}
NumericProfile plain(const char* name, Quantization weight, Quantization activation, DType output, Format kv_cache,
                     const char* source) {
  NumericProfile profile = preset(name, weight, activation, kv_cache, 0, "", source);
  profile.output = output;
  return profile;
}

std::vector<NumericProfile> make_profiles() {
  constexpr Format kv = Format::e4m3;
  constexpr Format bf16 = Format::bf16;
  return {
      preset("b200-nvfp4", kNvfp4FourOverSix, kPlainBf16, kv, kTileSm100, "B200", kStitchNvfp4),
      preset("b300-nvfp4", kNvfp4FourOverSix, kPlainBf16, kv, kTileSm100, "B300", kStitchNvfp4),
      preset("h100-fp8", kFp8Weight, kFp8Activation, kv, kTileSm90, "H100", kStitchFp8),
      preset("h200-fp8", kFp8Weight, kFp8Activation, kv, kTileSm90, "H200", kStitchFp8),
      accumulate14(preset("", kFp8Weight, kFp8Activation, kv, 0, "H100", ""), "h100-fp8-accumulate14", 128,
                   kAccumulate14),
      accumulate14(preset("", kFp8Channel, kFp8Channel, kv, 0, "H100", ""), "h100-fp8-channel-accumulate14", 0,
                   kFastAccumulate14),
      preset("h100-bf16", kPlainBf16, kPlainBf16, kv, kTileSm90, "H100", kStitchBf16),
      preset("h200-bf16", kPlainBf16, kPlainBf16, kv, kTileSm90, "H200", kStitchBf16),
      preset("a100-bf16", kPlainBf16, kPlainBf16, kv, kTileSm80, "A100", kStitchBf16),
      preset("rtxpro6000-bf16", kPlainBf16, kPlainBf16, kv, kTileSm120, "RTX PRO 6000", kStitchBf16),
      preset("b200-bf16", kPlainBf16, kPlainBf16, bf16, kTileSm100, "B200",
             "formats: modal-projects/stitch configs (homogeneous fleet, BF16 KV); tiling modelled"),
      preset("b200-nvfp4-w4a4", kNvfp4FourOverSix, kNvfp4, kv, kTileSm100, "B200", kW4a4),
      preset("b300-nvfp4-w4a4", kNvfp4FourOverSix, kNvfp4, kv, kTileSm100, "B300", kW4a4),
      plain("fp32", kPlainFp32, kPlainFp32, DType::f32, Format::fp32, "IEEE 754 binary32"),
      plain("bf16", kPlainBf16, kPlainBf16, DType::bf16, bf16, "bfloat16, fp32 accumulation"),
      plain("fp16", kPlainFp16, kPlainFp16, DType::f16, Format::fp16, "IEEE 754 binary16, fp32 accumulation"),
      plain("fp8", kFp8Weight, kFp8Activation, DType::bf16, bf16, "DeepSeek-V3 inference/kernel.py, fp32 scales"),
      plain("nvfp4", kNvfp4, kPlainBf16, DType::bf16, bf16, "NVIDIA TransformerEngine docs, weights only"),
      plain("mxfp8", kMxfp8, kMxfp8, DType::bf16, bf16, "OCP MX 1.0, FLOOR rule"),
      plain("mxfp4", kMxfp4, kPlainBf16, DType::bf16, bf16, "OCP MX 1.0, FLOOR rule, weights only"),
  };
}

std::string describe(const Quantization& how) {
  std::string text(format_name(how.format));
  switch (how.scaling) {
    case Scaling::none:
      break;
    case Scaling::tensor:
      text += "/tensor";
      break;
    case Scaling::channel:
      text += "/channel";
      break;
    case Scaling::block128x128:
      text += "/128x128";
      break;
    case Scaling::block1x128:
      text += "/1x128";
      break;
    case Scaling::mx32:
      text += "/mx32";
      break;
    case Scaling::nv16:
      text += "/nv16";
      break;
  }
  return how.four_over_six ? text + " four-over-six" : text;
}

}  // namespace

const std::vector<NumericProfile>& profiles() {
  static const std::vector<NumericProfile> table = make_profiles();
  return table;
}

const NumericProfile* find_profile(std::string_view name) {
  for (const NumericProfile& profile : profiles()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::string weight_format_name(const NumericProfile& profile) {
  const Quantization& weight = profile.weight;
  if (weight.scaling == Scaling::nv16) return "nvfp4";
  if (weight.scaling == Scaling::mx32) return weight.format == Format::e2m1 ? "mxfp4" : "mxfp8";
  if (weight.format == Format::e4m3 || weight.format == Format::e5m2) return "fp8";
  return std::string(format_name(weight.format));
}

std::string describe(const NumericProfile& profile) {
  std::string text = "weights " + describe(profile.weight) + ", activations " + describe(profile.activation) + ", KV " +
                     std::string(format_name(profile.kv_cache));
  if (profile.kv_scale != 1.0) text += " scale " + std::to_string(profile.kv_scale);
  text += ", output " + std::string(dtype_name(profile.output));
  text +=
      profile.k_tile == 0 ? ", one chain over K" : ", reduction tile " + std::to_string(profile.k_tile) + " (modelled)";
  if (profile.accumulation == Accumulation::hopper_fp8) text += ", 14-bit accumulation within it (modelled)";
  if (!profile.invariant) text += ", vendor kernels";
  return profile.hardware.empty() ? text : text + ", " + profile.hardware + " (emulated)";
}

}  // namespace motley::kernels
