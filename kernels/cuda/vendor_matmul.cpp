// Products of plain operands by cuBLASLt.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>

#include "kernels/cuda/cublaslt.h"
#include "kernels/device_memory.h"
#include "kernels/finish.h"
#include "kernels/vendor.h"

namespace motley::kernels::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// Rows [m.rows, m.cols] as one side of a column-major product: the left one, [rows, depth], or the right, [depth,
/// rows]. Nothing where neither stride is 1.
std::optional<lt::Operand> operand(const ConstMatrix& m, bool left) {
  const bool deep = m.col_stride == 1 && (m.rows <= 1 || m.row_stride >= m.cols);
  const bool turned = m.row_stride == 1 && (m.cols <= 1 || m.col_stride >= m.rows);
  if (!deep && !turned) return {};
  const auto side = [&](int64_t rows, int64_t cols, int64_t stride, bool transposed) {
    return lt::Operand{m.data, type_of(m.dtype), rows, cols, std::max(stride, rows), transposed};
  };
  // Deep rows are columns of the memory: [depth, rows].
  return deep ? side(m.cols, m.rows, m.row_stride, left) : side(m.rows, m.cols, m.col_stride, !left);
}

bool fits(const MatmulArgs& args) {
  const DType type = args.a.dtype;
  return args.packed == nullptr && args.packed_codes.codes == nullptr && type != DType::f64 && args.b.dtype == type &&
         (args.c.dtype == type || args.c.dtype == DType::f32) && args.a_scales == nullptr && args.a.cols > 0;
}
bool has_plain_finish(const MatmulArgs& args) {
  return args.column_factors == nullptr && args.row_factors == nullptr && args.gate.data == nullptr;
}

/// sums, column-major or not as `c` lies, = alpha A B^T + beta before. Empty, or why not.
std::string multiply(const MatmulArgs& args, const Matrix& c, float alpha, const ConstMatrix& before) {
  const bool turned = c.col_stride != 1;  // the memory of c is C itself, else its transpose
  if (turned && c.row_stride != 1) return "cuBLASLt: no result with gaps between its elements";
  const auto x = operand(turned ? args.a : args.b, true), y = operand(turned ? args.b : args.a, false);
  if (!x || !y) return "cuBLASLt: no operand with gaps between its elements";
  const auto stride = [&](int64_t row_stride, int64_t col_stride) {
    return std::max(turned ? col_stride : row_stride, turned ? c.rows : c.cols);
  };
  lt::Product p{*x, *y};
  p.d = c.data;
  p.d_type = type_of(c.dtype);
  p.rows = turned ? c.rows : c.cols;
  p.cols = turned ? c.cols : c.rows;
  p.d_stride = stride(c.row_stride, c.col_stride);
  p.alpha = alpha;
  p.beta = before.data != nullptr ? 1.0f : 0.0f;
  p.c = before.data != nullptr ? before.data : c.data;
  p.c_stride = before.data != nullptr ? stride(before.row_stride, before.col_stride) : p.d_stride;
  return lt::run(p);
}

bool lies_like(const ConstMatrix& m, const Matrix& c) {
  return m.dtype == c.dtype && (c.col_stride == 1 ? m.col_stride == 1 : m.row_stride == 1);
}

/// fp32 sums of a product, for the length of a call.
struct Sums {
  explicit Sums(int64_t count) : data(static_cast<float*>(allocate(static_cast<size_t>(count) * sizeof(float)))) {}
  ~Sums() { release(data); }
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;
  float* data;
};

std::string compute(const MatmulArgs& args) {
  if (args.c.rows == 0 || args.c.cols == 0) return {};
  const bool adds = args.residual.data != nullptr;
  if (has_plain_finish(args) && (!adds || lies_like(args.residual, args.c))) {
    ConstMatrix before = args.residual;
    if (args.accumulate)
      before = {args.c.data, args.c.dtype, args.c.rows, args.c.cols, args.c.row_stride, args.c.col_stride};
    return multiply(args, args.c, args.alpha, before);
  }
  const Sums sums(args.c.rows * args.c.cols);
  const std::string why = multiply(args, row_major(sums.data, DType::f32, args.c.rows, args.c.cols), 1.0f, {});
  if (why.empty()) finish_sums(args, sums.data);
  return why;
}

cudaDataType_t type_of(Format format) {
  return format == Format::e4m3 ? CUDA_R_8F_E4M3 : format == Format::e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_4F_E2M1;
}

/// Rows of codes are columns of the memory.
lt::Operand side(const VendorCodes& codes, int64_t rows, cublasLtMatmulMatrixScale_t scaling, bool left) {
  return {codes.codes, type_of(codes.format), codes.cols, rows, codes.cols, left, scaling, codes.scales};
}

std::string compute(VendorProduct product, const VendorCodes& a, const VendorCodes& b, const MatmulArgs& finish) {
  const std::string why = vendor_shape_refusal(product, b.rows, b.cols);
  if (!why.empty()) return "cuBLASLt has " + why;
  const bool blocks = product == VendorProduct::fp8_blocks;
  const auto scaling = product == VendorProduct::mxfp8   ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0
                       : product == VendorProduct::nvfp4 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3
                       : blocks                          ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                                         : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  const int64_t rows = blocks ? (a.rows + 3) / 4 * 4 : a.rows;
  lt::Product p{side(b, b.rows, blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : scaling, true),
                side(a, rows, scaling, false)};
  p.rows = b.rows;
  p.cols = rows;
  const bool direct = rows == a.rows && has_plain_finish(finish) && finish.residual.data == nullptr &&
                      finish.c.col_stride == 1 && finish.c.row_stride >= b.rows;
  const Sums sums(direct ? 0 : rows * b.rows);
  p.d = direct ? finish.c.data : sums.data;
  p.d_type = direct ? type_of(finish.c.dtype) : CUDA_R_32F;
  p.d_stride = direct ? finish.c.row_stride : b.rows;
  p.alpha = direct ? finish.alpha : 1.0f;
  p.c = p.d;
  p.c_stride = p.d_stride;
  const std::string failure = lt::run(p);
  if (failure.empty() && !direct) finish_sums(finish, sums.data);
  return failure;
}

}  // namespace

std::string cublaslt_library() { return lt::library(); }

bool vendor_matmul_codes(VendorProduct product, const VendorCodes& a, const VendorCodes& b, const MatmulArgs& finish) {
  if (a.rows == 0) return true;
  const std::string why = compute(product, a, b, finish);
  if (!why.empty()) note_vendor_refusal(why);
  return why.empty();
}

bool vendor_matmul(const MatmulArgs& args) {
  if (!fits(args)) return false;
  const std::string why = compute(args);
  if (!why.empty()) note_vendor_refusal(why);
  return why.empty();
}

}  // namespace motley::kernels::cuda
