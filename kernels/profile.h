// NumericProfile: what an engine computes, as a value. Accelerator names are presets of it, in one table
// (kernels/profile.cpp) with sources.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"

namespace motley::kernels {

/// Over what a scale of a quantized tensor extends.
enum class Scaling : uint8_t {
  none,          // plain cast
  tensor,        // one fp32 scale
  channel,       // one fp32 scale per row (output channel of a weight, token of an activation)
  block128x128,  // fp32 scales, weights (DeepSeek-V3)
  block1x128,    // fp32 scales per token and 128 inputs, activations
  mx32,          // blocks of 32 along the input, ue8m0 scales (OCP MX 1.0)
  nv16,          // blocks of 16 along the input, e4m3 scales and one fp32 scale for the tensor (NVFP4)
};

struct Quantization {
  Format format = Format::bf16;
  Scaling scaling = Scaling::none;
  bool four_over_six = false;  // nv16 only: per block, map the largest magnitude to 6 or to 4, whichever errs less
  bool operator==(const Quantization&) const = default;
};

/// How products are summed.
enum class Accumulation : uint8_t {
  fp32,        // one chain of fused multiply-adds, or tiles of them
  hopper_fp8,  // 14 bits, as Hopper's fp8 tensor cores (kernels/hopper_fp8.h); tiles are summed in fp32
};

struct NumericProfile {
  std::string name;
  Quantization weight;      // linear layers; head, embedding and norms are kept in `output`
  Quantization activation;  // inputs of linear layers
  Format kv_cache = Format::bf16;
  double kv_scale = 1.0;       // stored = cast(x / scale)
  DType output = DType::bf16;  // what layer outputs are rounded to
  int64_t k_tile = 0;          // modelled reduction tiling: 0 is one chain over K
  Accumulation accumulation = Accumulation::fp32;
  bool invariant = true;  // kernels = "invariant"; false: "vendor"
  std::string hardware;   // the accelerator that the preset stands for; empty for plain formats
  std::string source;     // where the preset's facts come from, in one line
  bool operator==(const NumericProfile&) const = default;
};

/// All presets, by name. `trainer` is not among them: it stands for the trainer's own profile.
const std::vector<NumericProfile>& profiles();
/// The preset of that name, or null.
const NumericProfile* find_profile(std::string_view name);
/// The weight format in the words that profiles are named with: bf16, fp16, fp32, fp8, nvfp4, mxfp8, mxfp4.
std::string weight_format_name(const NumericProfile& profile);
/// One line for `motley list profiles`: formats, KV cache, tiling, hardware, emulated or not.
std::string describe(const NumericProfile& profile);

}  // namespace motley::kernels
