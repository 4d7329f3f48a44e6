#include "tensor/ops.h"

#include <cstring>

#include "kernels/pointwise.h"
#include "tensor/ops_common.h"
#include "tensor/tensor_impl.h"

namespace motley {

using kernels::Compute;
using kernels::visit_dtype;

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype);
  kernels::cpu::convert(y.raw(), dtype, x.raw(), x.dtype(), x.numel());
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
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  visit_dtype(a.dtype(), [&]<class T>(T) { kernels::cpu::add<T>(y.data<T>(), a.data<T>(), b.data<T>(), a.numel()); });
  return record("add", y, {a, b}, [a, b](const Tensor& dy) {
    if (a.requires_grad()) a.add_grad(dy);
    if (b.requires_grad()) b.add_grad(dy);
  });
}

namespace {

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  visit_dtype(a.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    const T *x = a.data<T>(), *z = b.data<T>();
    T* out = y.data<T>();
    for (int64_t i = 0; i < a.numel(); ++i) out[i] = T(C(x[i]) * C(z[i]));
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
  Tensor y = Tensor::empty({1}, kernels::compute_dtype(x.dtype()));
  visit_dtype(x.dtype(), [&]<class T>(T) {
    double total = 0.0;
    for (const T value : x.span<T>()) total += static_cast<double>(Compute<T>(value));
    *y.data<Compute<T>>() = static_cast<Compute<T>>(total);
  });
  return record("sum", y, {x}, [x](const Tensor& dy) {
    Tensor dx = Tensor::empty(x.shape(), x.dtype());
    visit_dtype(x.dtype(), [&]<class T>(T) {
      const T value = T(*dy.data<Compute<T>>());
      for (T& each : dx.span<T>()) each = value;
    });
    x.add_grad(std::move(dx));
  });
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  ops::check_same("silu_mul", gate, up);
  Tensor y = Tensor::empty(gate.shape(), gate.dtype());
  visit_dtype(gate.dtype(), [&]<class T>(T) {
    kernels::cpu::silu_mul<T>({y.data<T>(), gate.data<T>(), up.data<T>(), gate.numel()});
  });
  if (!grad_enabled()) return y;
  y.set_remake([gate, up](const Tensor& again) {
    visit_dtype(gate.dtype(), [&]<class T>(T) {
      kernels::cpu::silu_mul<T>({again.data<T>(), gate.data<T>(), up.data<T>(), gate.numel()});
    });
  });
  return record("silu_mul", y, {gate, up}, [gate, up](const Tensor& dy) {
    Tensor dgate = Tensor::empty(gate.shape(), gate.dtype()), dup = Tensor::empty(gate.shape(), gate.dtype());
    visit_dtype(gate.dtype(), [&]<class T>(T) {
      kernels::cpu::silu_mul_backward<T>(
          {dgate.data<T>(), dup.data<T>(), dy.data<T>(), gate.data<T>(), up.data<T>(), gate.numel()});
    });
    if (gate.requires_grad()) gate.add_grad(std::move(dgate));
    if (up.requires_grad()) up.add_grad(std::move(dup));
  });
}

Tensor round_values(const Tensor& x, kernels::Format format, double scale) {
  MOTLEY_CHECK(scale > 0.0, "round_values", "the scale must be positive: got " + std::to_string(scale));
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  visit_dtype(x.dtype(),
              [&]<class T>(T) { kernels::cpu::round_values<T>(y.data<T>(), x.data<T>(), format, scale, x.numel()); });
  return record("round_values", y, {x}, [x](const Tensor& dy) { x.add_grad(dy); });
}

}  // namespace motley
