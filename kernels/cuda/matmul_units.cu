// Products on matrix units: which body computes them (kernels/cuda/unit_product.h, and matmul_wgmma.cu on Hopper), and
// how their operands lie.
#include <stdexcept>

#include "kernels/cuda/unit_product.h"
#include "kernels/cuda/warpgroup_product.h"
#include "kernels/device_memory.h"
#include "kernels/matmul.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

template <class T, class Tiling, bool Cut>
GPU_BOUNDED_KERNEL(Tiling::kThreads, 1)
void unit_product_kernel(UnitJob job) {
  GPU_DYNAMIC_SHARED(memory);
  const int64_t across = pieces(job.b.rows, Tiling::kCols);
  multiply_unit_tile<T, Tiling, Cut>(job, block() / across * Tiling::kRows, block() % across * Tiling::kCols, memory);
}

template <class T, class Tiling>
void launch_units(const UnitJob& job) {
  const int64_t blocks = pieces(job.a.rows, Tiling::kRows) * pieces(job.b.rows, Tiling::kCols);
  const Launch shape{"matmul_units", blocks, Tiling::kThreads, Tiling::kShared};
  if (job.product.args.k_tile == 0)
    launch(shape, unit_product_kernel<T, Tiling, false>, job);
  else
    launch(shape, unit_product_kernel<T, Tiling, true>, job);
}
template <class T>
void launch_units(const UnitJob& job, UnitTiling tiling) {
  switch (tiling) {
    case UnitTiling::few_rows:
      return launch_units<T, FewRows>(job);
    case UnitTiling::medium:
      return launch_units<T, MediumTiles>(job);
    default:
      return launch_units<T, WideTiles>(job);
  }
}

/// Warpgroups for wide tiles, where they were found to have the bits of the others.
UnitTiling automatic_tiling(const UnitJob& job) {
  const UnitTiling tiling = unit_tiling(job.a.rows);
  const bool wide = tiling == UnitTiling::wide && fits_warpgroups(job.product.args) && job.a.source == Source::deep;
  return wide && warpgroup_refusal().empty() ? UnitTiling::warpgroup : tiling;
}

}  // namespace

UnitOperand unit_operand(const ConstMatrix& m) {
  const auto aligned = [&](int64_t stride) { return stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0; };
  const Source source = m.col_stride == 1 && aligned(m.row_stride)   ? Source::deep
                        : m.row_stride == 1 && aligned(m.col_stride) ? Source::flat
                                                                     : Source::elements;
  return {source, m, {}, m.rows, m.cols};
}
UnitOperand unit_operand(const PackedCodes& b) {
  const bool halves = b.format == Format::bf16 || b.format == Format::fp16;
  return {halves ? Source::panels : Source::codes, {}, b, b.rows, b.cols};
}

void check_unit_product(const char* name, const MatmulArgs& args) {
  check_product(args);
  if (fits_matrix_units(args)) return;
  throw std::logic_error(std::string(name) +
                         ": bf16 or fp16 rows by rows of the same type or by weights that are exact in it, k_tile a "
                         "multiple of 16");
}

void matmul_units(const MatmulArgs& args, UnitTiling tiling) {
  check_unit_product("matmul_units", args);
  if (is_empty_product(args)) return;
  const UnitJob job{
      {args}, unit_operand(args.a), is_packed(args) ? unit_operand(args.packed_codes) : unit_operand(args.b)};
  if (tiling == UnitTiling::automatic) tiling = automatic_tiling(job);
  if (tiling == UnitTiling::warpgroup) return warpgroup_product(job);
  if (args.a.dtype == DType::bf16)
    launch_units<bf16>(job, tiling);
  else
    launch_units<fp16>(job, tiling);
}

}  // namespace motley::kernels::GPU_NAMESPACE
