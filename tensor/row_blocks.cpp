#include "tensor/row_blocks.h"

#include <utility>

#include "tensor/ops_common.h"

namespace motley::ops {

kernels::ConstMatrix rows_at(const Tensor& x, int64_t first, int64_t count) {
  const kernels::Matrix m = rows_to(x, first, count);
  return {m.data, m.dtype, m.rows, m.cols, m.row_stride, m.col_stride};
}
kernels::Matrix rows_to(const Tensor& x, int64_t first, int64_t count) {
  const auto row_bytes = x.dim(-1) * static_cast<int64_t>(kernels::dtype_size(x.dtype()));
  auto* data = static_cast<std::byte*>(x.raw()) + first * row_bytes;
  return kernels::row_major(static_cast<void*>(data), x.dtype(), count, x.dim(-1));
}
kernels::ConstMatrix matrix(const Tensor& x) { return rows_at(x, 0, rows_of(x)); }

SharedOperand::SharedOperand(const kernels::ConstMatrix& b, int64_t rows) : b_(b) {
  constexpr int64_t kWorthPacking = 128;
  if (rows > kWorthPacking) packed_ = kernels::pack(b);
}
void SharedOperand::multiply(const kernels::ConstMatrix& a, const kernels::Matrix& c, int64_t k_tile,
                             const kernels::ConstMatrix& residual) const {
  kernels::MatmulArgs args;
  args.a = a;
  args.b = b_;
  args.packed = packed_ ? &*packed_ : nullptr;
  args.c = c;
  args.k_tile = k_tile;
  args.residual = residual;
  kernels::cpu::matmul(args);
}

void WeightGradient::add(const kernels::ConstMatrix& dy, const kernels::ConstMatrix& x) {
  if (!weight_.requires_grad()) return;
  kernels::MatmulArgs args;
  args.a = transposed(dy);
  args.b = transposed(x);
  args.accumulate = true;
  if (!sum_.defined()) {
    const DType compute = kernels::compute_dtype(weight_.dtype());
    if (weight_.grad_dtype() != compute) {
      sum_ = Tensor::zeros(weight_.shape(), compute, weight_.device());
    } else {
      sum_ = weight_.unset_chain();  // a chain from 0, as from a buffer of zeros
      args.accumulate = !sum_.defined();
      if (args.accumulate) sum_ = weight_.chain_buffer();
    }
  }
  args.c = kernels::row_major(sum_.raw(), sum_.dtype(), args.a.rows, args.b.rows);
  multiply(weight_.device(), args, choice_);
}
void WeightGradient::finish() {
  if (sum_.defined() && weight_.grad_dtype() != sum_.dtype()) weight_.add_grad(std::move(sum_));
}

}  // namespace motley::ops
