// Codes of the KV cache to floats, one body per instruction set, chosen at run time.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace motley::kernels::cpu {

/// out[i][out_stride] = codes[i][stride] * scale, `count` codes of each row, rounded to `rounding` where that is bf16
/// or fp16. Formats: fp32, bf16, fp16, e4m3, e5m2. Gives decode_kv's bits (kernels/kv_format.h).
struct KvDecode {
  const void* codes;
  Format format;
  DType rounding;
  float scale;
  int64_t rows, count, stride;
  float* out;
  int64_t out_stride;
};
void decode_kv_rows(const KvDecode& args);

}  // namespace motley::kernels::cpu
