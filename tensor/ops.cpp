#include "tensor/ops.h"

#include "kernels/arrays.h"
#include "kernels/pointwise.h"
#include "tensor/ops_common.h"
#include "tensor/tensor_impl.h"

namespace motley {

using kernels::Compute;
using kernels::visit_dtype;

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  MOTLEY_RUN(x.device(), convert, y.raw(), dtype, x.raw(), x.dtype(), x.numel());
  if (!grad_enabled() || !x.requires_grad()) return y;
  const bool of_leaf = x.impl_->leaf || x.impl_->grad_owner;
  if (of_leaf && x.grad_dtype() == kernels::compute_dtype(dtype)) {
    // The gradient of the low-precision copy is the master's, never rounded.
    y.impl_->grad_owner = x.impl_->grad_owner ? x.impl_->grad_owner : x.impl_;
    return y;
  }
  if (of_leaf) y.impl_->grad_dtype = kernels::compute_dtype(dtype);
  return record("cast", y, {x}, [x](const Tensor& dy) { x.add_grad(dy); });
}

Tensor add(const Tensor& a, const Tensor& b) {
  ops::check_same("add", a, b);
  Tensor y = ops::empty_like(a);
  visit_dtype(a.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(a.device(), add<T>, y.pointer<T>(), a.pointer<T>(), b.pointer<T>(), a.numel());
  });
  return record("add", y, {a, b}, [a, b](const Tensor& dy) {
    if (a.requires_grad()) a.add_grad(dy);
    if (b.requires_grad()) b.add_grad(dy);
  });
}

namespace {

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor y = ops::empty_like(a);
  visit_dtype(a.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(a.device(), multiply<T>, y.pointer<T>(), a.pointer<T>(), b.pointer<T>(), a.numel());
  });
  return y;
}

}  // namespace

Tensor mul(const Tensor& a, const Tensor& b) {
  ops::check_same("mul", a, b);
  return record("mul", product(a, b), {a, b}, [a, b](const Tensor& dy) {
    if (a.requires_grad()) a.add_grad(product(dy, b));
    if (b.requires_grad()) b.add_grad(product(dy, a));
  });
}

Tensor sum(const Tensor& x) {
  Tensor y = Tensor::empty({1}, kernels::compute_dtype(x.dtype()), x.device());
  visit_dtype(x.dtype(),
              [&]<class T>(T) { MOTLEY_RUN(x.device(), sum<T>, y.pointer<Compute<T>>(), x.pointer<T>(), x.numel()); });
  return record("sum", y, {x}, [x](const Tensor& dy) {
    Tensor dx = ops::empty_like(x);
    visit_dtype(x.dtype(), [&]<class T>(T) {
      MOTLEY_RUN(x.device(), fill<T>, dx.pointer<T>(), dy.pointer<Compute<T>>(), x.numel());
    });
    x.add_grad(std::move(dx));
  });
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  ops::check_same("silu_mul", gate, up);
  Tensor y = ops::empty_like(gate);
  visit_dtype(gate.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(gate.device(), silu_mul<T>, {y.pointer<T>(), gate.pointer<T>(), up.pointer<T>(), gate.numel()});
  });
  return record("silu_mul", y, {gate, up}, [gate, up](const Tensor& dy) {
    Tensor dgate = ops::empty_like(gate), dup = ops::empty_like(gate);
    visit_dtype(gate.dtype(), [&]<class T>(T) {
      MOTLEY_RUN(
          gate.device(), silu_mul_backward<T>,
          {dgate.pointer<T>(), dup.pointer<T>(), dy.pointer<T>(), gate.pointer<T>(), up.pointer<T>(), gate.numel()});
    });
    if (gate.requires_grad()) gate.add_grad(std::move(dgate));
    if (up.requires_grad()) up.add_grad(std::move(dup));
  });
}

Tensor round_values(const Tensor& x, kernels::Format format, double scale) {
  MOTLEY_CHECK(scale > 0.0, "round_values", "the scale must be positive: got " + std::to_string(scale));
  Tensor y = ops::empty_like(x);
  visit_dtype(x.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(x.device(), round_values<T>, y.pointer<T>(), x.pointer<T>(), format, scale, x.numel());
  });
  return record("round_values", y, {x}, [x](const Tensor& dy) { x.add_grad(dy); });
}

}  // namespace motley
