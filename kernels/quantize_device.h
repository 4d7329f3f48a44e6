// The quantizers on raw memory: what an op calls on any device. The rules are those of kernels/quantize.h and
// docs/formats.md; all bodies give the same bits.
#pragma once

#include "kernels/profile.h"

namespace motley::kernels {

struct QuantizeArgs {
  uint8_t* codes;        // [rows, row bytes], the layout of QuantizedMatrix::codes
  uint8_t* block_codes;  // nv16: e4m3 [rows, ceil(cols/16)]; mx32: ue8m0 [rows, ceil(cols/32)]; else unused
  float* scales;         // as QuantizedMatrix::scales
  const float* values;   // [rows, cols]
  int64_t rows, cols;
  Quantization how;
  float shared_amax;  // > 0: the largest magnitude of all matrices that share the tensor's scale
};
struct QuantizeActivationsArgs {
  float* x;             // [rows, cols], in place: what the codes and their block codes give, before any fp32 scale
  float* factors;       // [rows], on the finished sum: the row's own fp32 scale, else 1
  float* block_scales;  // block1x128: [rows, ceil(cols/128)]; else unused
  int64_t rows, cols;
  Quantization how;
};

// Both throw std::invalid_argument for what check_quantization and check_activation refuse; `quantize` on devices other
// than the CPU also for Scaling::none, which is a cast (`convert`).
namespace cpu {
void quantize(const QuantizeArgs& args);
void quantize_activations(const QuantizeActivationsArgs& args);
}  // namespace cpu
namespace cuda {
void quantize(const QuantizeArgs& args);
void quantize_activations(const QuantizeActivationsArgs& args);
}  // namespace cuda
namespace emulated {
void quantize(const QuantizeArgs& args);
void quantize_activations(const QuantizeActivationsArgs& args);
}  // namespace emulated
}  // namespace motley::kernels
