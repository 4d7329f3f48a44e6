#include "kernels/matmul.h"

namespace motley::kernels {

bool fits_matrix_units(const MatmulArgs& args) {
  if (args.a.dtype != DType::bf16 && args.a.dtype != DType::f16) return false;
  if (args.k_tile % 16 != 0) return false;
  if (args.packed_codes.codes == nullptr) return args.b.dtype == args.a.dtype;
  const PackedCodes& b = args.packed_codes;
  const bool is_bf16 = args.a.dtype == DType::bf16;
  switch (b.format) {
    case Format::bf16:
      return is_bf16;
    case Format::fp16:
      return !is_bf16;
    case Format::e4m3:
    case Format::e5m2:
    case Format::e2m1:
      return is_bf16 || b.scaling != Scaling::mx32;
    default:
      return false;
  }
}

}  // namespace motley::kernels
