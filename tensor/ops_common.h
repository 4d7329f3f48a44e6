// What the ops share: checks of operands, and how a kernel's result reaches a gradient.
#pragma once

#include "tensor/tensor.h"

namespace motley::ops {

/// The first dimensions of x taken together; x has at least one dimension, and the last is not empty.
inline int64_t rows_of(const Tensor& x) { return x.dim(-1) == 0 ? 0 : x.numel() / x.dim(-1); }

inline void check_same(std::string_view op, const Tensor& a, const Tensor& b) {
  MOTLEY_CHECK(a.shape() == b.shape(), op, "operands of different shapes");
  MOTLEY_CHECK(
      a.dtype() == b.dtype(), op,
      std::string("operands of types ") + kernels::dtype_name(a.dtype()) + " and " + kernels::dtype_name(b.dtype()));
}

/// body(buffer) adds into `buffer`, which has x's shape and the compute type: x's own gradient where that has this
/// type, so that the kernel's chain continues from what is there.
template <class Body>
void accumulate(const Tensor& x, Tensor::Chain chain, Body&& body) {
  if (!x.requires_grad()) return;
  const DType compute = kernels::compute_dtype(x.dtype());
  if (x.grad_dtype() == compute) {
    body(x.chain_buffer(chain));
    return;
  }
  Tensor part = Tensor::zeros(x.shape(), compute);
  body(part);
  x.add_grad(std::move(part));
}

}  // namespace motley::ops
