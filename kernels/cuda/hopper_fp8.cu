// The model of Hopper's fp8 accumulation with the CPU's bits (kernels/cpu/hopper_fp8.cpp): a thread per output, a step
// of both operands at a time in shared memory. It serves the study of that accumulation, not speed.
#include <bit>
#include <stdexcept>

#include "kernels/cuda/packed_form.h"
#include "kernels/cuda/product.h"
#include "kernels/hopper_fp8.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kTileRows = 16, kDepth = static_cast<int>(kHopperStep);  // rows of either operand, and their step
constexpr int kStride = kDepth + 1;                                    // a row's values spread over banks
constexpr int kProductThreads = kTileRows * kTileRows;

/// The power of two at or below |x|, as bits; 0 for 0.
GPU_DEVICE int32_t power_bits(float x) { return std::bit_cast<int32_t>(x) & 0x7f800000; }
GPU_DEVICE float power_of(float x) { return std::bit_cast<float>(power_bits(x)); }

/// One step: a[count], b[count] and the accumulator. All sums are of integers below 2^21, exact in float in any order;
/// NaN comes through.
GPU_DEVICE float hopper_step(const float* a, const float* b, int count, float accumulator) {
  // Larger than no product of two fp8 values but zero, so that zeros alone divide nothing by zero.
  int32_t top = std::bit_cast<int32_t>(0x1p-60f);
  if (power_bits(accumulator) > top) top = power_bits(accumulator);
  for (int k = 0; k < count; ++k) {
    const auto power = std::bit_cast<int32_t>(power_of(a[k]) * power_of(b[k]));
    top = power > top ? power : top;
  }
  constexpr int32_t kFraction = kHopperFraction << 23;
  const float unit = std::bit_cast<float>(top - kFraction);
  const float inverse = std::bit_cast<float>(kFraction - top + (254 << 23));
  float sum = std::trunc(accumulator * inverse);
  for (int k = 0; k < count; ++k) sum += std::trunc(a[k] * b[k] * inverse);
  const auto value = std::bit_cast<int32_t>(sum * unit);
  return std::bit_cast<float>(value & -(1 << (23 - kHopperFraction)));
}

/// Rows [row, row + kTileRows) and columns [k, k + kDepth), zeros beyond the operand.
GPU_DEVICE void load_rows(float* tile, const ConstMatrix& m, int64_t row, int64_t k) {
  const float* data = static_cast<const float*>(m.data);
  for (int i = thread(); i < kTileRows * kDepth; i += kProductThreads) {
    const int r = i / kDepth, c = i % kDepth;
    const bool inside = row + r < m.rows && k + c < m.cols;
    tile[r * kStride + c] = inside ? data[(row + r) * m.row_stride + k + c] : 0.0f;
  }
}
template <Format F>
GPU_DEVICE void load_codes(float* tile, const PackedCodes& b, int64_t row, int64_t k) {
  for (int i = thread(); i < kTileRows * kDepth; i += kProductThreads) {
    const int r = i % kTileRows, c = i / kTileRows;
    const bool inside = row + r < b.rows && k + c < b.cols;
    tile[r * kStride + c] = inside ? packed_value<F, Scaling::none>(b, row + r, k + c) : 0.0f;
  }
}

template <Format F>
GPU_BOUNDED_KERNEL(kProductThreads, 2)
void hopper_product_kernel(Product p) {
  GPU_SHARED(float, a, kTileRows* kStride);
  GPU_SHARED(float, b, kTileRows* kStride);
  const MatmulArgs& args = p.args;
  const int64_t depth = args.a.cols, across = pieces(args.packed_codes.rows, kTileRows);
  const int64_t first_row = block() / across * kTileRows, first_col = block() % across * kTileRows;
  const int r = thread() / kTileRows, c = thread() % kTileRows;
  const int64_t row = first_row + r, col = first_col + c;
  const bool inside = row < args.c.rows && col < args.packed_codes.rows;
  float total = 0, accumulator = 0;
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t end = k + kDepth < depth ? k + kDepth : depth;
    barrier();
    load_rows(a, args.a, first_row, k);
    load_codes<F>(b, args.packed_codes, first_col, k);
    barrier();
    accumulator = hopper_step(a + r * kStride, b + c * kStride, static_cast<int>(end - k), accumulator);
    if (end < depth && (args.k_tile == 0 || end % args.k_tile != 0)) continue;
    if (inside) total = add_partial(args, row, col, end, accumulator, total);
    accumulator = 0;
  }
  if (inside) finish(p, row, col, total);
}

}  // namespace

void hopper_fp8_product(const MatmulArgs& args) {
  check_product(args);
  const PackedCodes& b = args.packed_codes;
  const bool fp8 = (b.format == Format::e4m3 || b.format == Format::e5m2) && b.scaling == Scaling::none;
  if (!is_packed(args) || !fp8 || args.a.dtype != DType::f32 || args.a.col_stride != 1 || args.accumulate ||
      args.k_tile % kHopperStep != 0)
    throw std::logic_error(
        "hopper_fp8_product: row-major fp32 rows by packed e4m3 or e5m2 weights, k_tile a multiple of 32");
  const Launch shape{"hopper_fp8_product", pieces(args.c.rows, kTileRows) * pieces(b.rows, kTileRows), kProductThreads};
  if (b.format == Format::e4m3)
    launch(shape, hopper_product_kernel<Format::e4m3>, Product{args});
  else
    launch(shape, hopper_product_kernel<Format::e5m2>, Product{args});
}

}  // namespace motley::kernels::GPU_NAMESPACE
