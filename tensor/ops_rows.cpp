#include <cstring>

#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "tensor/ops.h"
#include "tensor/ops_common.h"

namespace motley {

using kernels::Compute;
using kernels::row_major;
using kernels::transposed;
using kernels::visit_dtype;

Tensor embedding(const Tensor& table, std::span<const int32_t> ids) {
  MOTLEY_CHECK(table.shape().size() == 2, "embedding", "the table must be a matrix");
  for (const int32_t id : ids) {
    MOTLEY_CHECK(id >= 0 && id < table.dim(0), "embedding",
                 "id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(table.dim(0)));
  }
  const auto rows = static_cast<int64_t>(ids.size());
  Tensor y = Tensor::empty({rows, table.dim(1)}, table.dtype());
  visit_dtype(table.dtype(), [&]<class T>(T) {
    kernels::cpu::embedding<T>({y.data<T>(), table.data<T>(), ids.data(), rows, table.dim(1)});
  });
  if (!grad_enabled() || !table.requires_grad()) return y;
  return record("embedding", y, {table}, [table, kept = std::vector(ids.begin(), ids.end())](const Tensor& dy) {
    ops::accumulate(table, Tensor::Chain::rows, [&](const Tensor& dtable) {
      visit_dtype(table.dtype(), [&]<class T>(T) {
        kernels::cpu::embedding_backward<T>(
            {dtable.data<Compute<T>>(), dy.data<T>(), kept.data(), dy.dim(0), dy.dim(1)});
      });
    });
  });
}

Tensor gather_rows(const Tensor& x, std::span<const int64_t> rows) {
  MOTLEY_CHECK(x.shape().size() == 2, "gather_rows", "the operand must be a matrix");
  const size_t row_bytes = static_cast<size_t>(x.dim(1)) * kernels::dtype_size(x.dtype());
  Tensor y = Tensor::empty({static_cast<int64_t>(rows.size()), x.dim(1)}, x.dtype());
  for (size_t i = 0; i < rows.size(); ++i) {
    MOTLEY_CHECK(rows[i] >= 0 && rows[i] < x.dim(0), "gather_rows",
                 "row " + std::to_string(rows[i]) + " of " + std::to_string(x.dim(0)));
    std::memcpy(static_cast<std::byte*>(y.raw()) + i * row_bytes,
                static_cast<const std::byte*>(x.raw()) + static_cast<size_t>(rows[i]) * row_bytes, row_bytes);
  }
  if (!grad_enabled() || !x.requires_grad()) return y;
  return record("gather_rows", y, {x}, [x, kept = std::vector(rows.begin(), rows.end())](const Tensor& dy) {
    Tensor dx = Tensor::zeros(x.shape(), x.dtype());
    visit_dtype(x.dtype(), [&]<class T>(T) {
      const int64_t cols = x.dim(1);
      for (size_t i = 0; i < kept.size(); ++i) {
        T* into = dx.data<T>() + kept[i] * cols;
        kernels::cpu::add<T>(into, into, dy.data<T>() + static_cast<int64_t>(i) * cols, cols);
      }
    });
    x.add_grad(std::move(dx));
  });
}

Tensor rms_norm(const Tensor& x, const Tensor& gain, double eps) {
  MOTLEY_CHECK(gain.shape() == Shape{x.dim(-1)}, "rms_norm", "gain must have one element per column");
  MOTLEY_CHECK(x.dtype() == gain.dtype(), "rms_norm", "gain has another type than x");
  const int64_t rows = ops::rows_of(x), cols = x.dim(-1);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const Tensor rstd = Tensor::empty({rows}, kernels::compute_dtype(x.dtype()));
  const auto run_forward = [x, gain, rstd, rows, cols, eps](const Tensor& into) {
    visit_dtype(x.dtype(), [&]<class T>(T) {
      kernels::cpu::rms_norm<T>(
          {into.data<T>(), rstd.data<Compute<T>>(), x.data<T>(), gain.data<T>(), rows, cols, eps});
    });
  };
  run_forward(y);
  if (!grad_enabled()) return y;
  y.set_remake(run_forward);
  return record("rms_norm", y, {x, gain}, [x, gain, rstd, rows, cols](const Tensor& dy) {
    Tensor dx = Tensor::empty(x.shape(), x.dtype());
    const auto run = [&](const Tensor& dgain) {
      visit_dtype(x.dtype(), [&]<class T>(T) {
        kernels::cpu::rms_norm_backward<T>({dx.data<T>(), dgain.data<Compute<T>>(), dy.data<T>(), x.data<T>(),
                                            gain.data<T>(), rstd.data<Compute<T>>(), rows, cols});
      });
    };
    if (gain.requires_grad()) {
      ops::accumulate(gain, Tensor::Chain::product, run);
    } else {
      run(Tensor::zeros(gain.shape(), kernels::compute_dtype(gain.dtype())));
    }
    if (x.requires_grad()) x.add_grad(std::move(dx));
  });
}

namespace {

kernels::ConstMatrix matrix(const Tensor& x) {
  const auto* data = static_cast<const void*>(x.raw());
  return row_major(data, x.dtype(), ops::rows_of(x), x.dim(-1));
}

kernels::MatmulArgs product_of(const kernels::ConstMatrix& a, const kernels::ConstMatrix& b, const Tensor& c) {
  kernels::MatmulArgs args;
  args.a = a;
  args.b = b;
  args.c = row_major(c.raw(), c.dtype(), a.rows, b.rows);
  return args;
}

/// x's part of the gradient of y = x weight^T. A gradient that x has already is added where the product is stored.
void propagate_to_input(const Tensor& x, const Tensor& weight, const Tensor& dy) {
  const Tensor before = x.dtype() == DType::f64 ? Tensor() : x.growing_grad();
  Tensor dx = before.defined() ? before : Tensor::empty(x.shape(), x.dtype());
  kernels::MatmulArgs args = product_of(matrix(dy), transposed(matrix(weight)), dx);
  if (before.defined()) args.residual = matrix(before);
  kernels::cpu::matmul(args);
  if (!before.defined()) x.add_grad(std::move(dx));
}

void propagate_to_weight(const Tensor& x, const Tensor& weight, const Tensor& dy) {
  const auto run = [&](const Tensor& dweight, bool accumulate) {
    kernels::MatmulArgs args = product_of(transposed(matrix(dy)), transposed(matrix(x)), dweight);
    args.accumulate = accumulate;
    kernels::cpu::matmul(args);
  };
  if (weight.requires_grad() && weight.grad_dtype() == kernels::compute_dtype(weight.dtype())) {
    const Tensor unset = weight.unset_chain();
    if (unset.defined()) return run(unset, false);  // a chain from 0, as from a buffer of zeros
  }
  ops::accumulate(weight, Tensor::Chain::product, [&](const Tensor& dweight) { run(dweight, true); });
}

void check_linear(const Tensor& x, const Tensor& weight) {
  MOTLEY_CHECK(x.shape().size() == 2 && weight.shape().size() == 2 && x.dim(1) == weight.dim(1), "linear",
               "x must be [rows, inputs] and the weight [outputs, inputs]");
  MOTLEY_CHECK((x.dtype() == DType::f64) == (weight.dtype() == DType::f64), "linear",
               "fp64 does not mix with other types");
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, int64_t k_tile) {
  check_linear(x, weight);
  Tensor y = Tensor::empty({x.dim(0), weight.dim(0)}, x.dtype());
  kernels::MatmulArgs args = product_of(matrix(x), matrix(weight), y);
  args.k_tile = k_tile;
  kernels::cpu::matmul(args);
  return record("linear", y, {x, weight}, [x, weight](const Tensor& dy) {
    if (x.requires_grad()) propagate_to_input(x, weight, dy);
    propagate_to_weight(x, weight, dy);
  });
}

namespace {

/// linear_added without history, of types other than fp64.
Tensor added_product(const Tensor& x, const Tensor& weight, const Tensor& residual, int64_t k_tile) {
  MOTLEY_CHECK(residual.shape() == Shape({x.dim(0), weight.dim(0)}) && residual.dtype() == x.dtype(), "linear_added",
               "the residual must have the product's shape and type");
  Tensor y = Tensor::empty(residual.shape(), x.dtype());
  kernels::MatmulArgs args = product_of(matrix(x), matrix(weight), y);
  args.k_tile = k_tile;
  args.residual = matrix(residual);
  kernels::cpu::matmul(args);
  return y;
}

}  // namespace

Tensor linear_added(const Tensor& x, const Tensor& weight, const Tensor& residual, int64_t k_tile) {
  check_linear(x, weight);
  if (x.dtype() == DType::f64) return add(residual, linear(x, weight, k_tile));
  const Tensor y = added_product(x, weight, residual, k_tile);
  return record("linear_added", y, {x, weight, residual}, [x, weight, residual](const Tensor& dy) {
    if (residual.requires_grad()) residual.add_grad(dy);
    if (x.requires_grad()) propagate_to_input(x, weight, dy);
    propagate_to_weight(x, weight, dy);
  });
}

Tensor gated_linear_added(const Tensor& gate, const Tensor& up, const Tensor& weight, const Tensor& residual,
                          int64_t k_tile) {
  ops::check_same("gated_linear_added", gate, up);
  check_linear(gate, weight);
  if (gate.dtype() == DType::f64) return linear_added(silu_mul(gate, up), weight, residual, k_tile);
  const auto gated = [&] {
    const NoGrad inside;
    return silu_mul(gate, up);
  };
  const Tensor y = added_product(gated(), weight, residual, k_tile);
  return record("gated_linear_added", y, {gate, up, weight, residual}, [gate, up, weight, residual](const Tensor& dy) {
    if (residual.requires_grad()) residual.add_grad(dy);
    Tensor dgate = Tensor::empty(gate.shape(), gate.dtype()), dup = Tensor::empty(gate.shape(), gate.dtype());
    const Tensor again = Tensor::empty(gate.shape(), gate.dtype());
    kernels::cpu::matmul(product_of(matrix(dy), transposed(matrix(weight)), dgate));  // silu_mul's gradient, in place
    visit_dtype(gate.dtype(), [&]<class T>(T) {
      kernels::cpu::silu_mul_backward<T>({dgate.data<T>(), dup.data<T>(), dgate.data<T>(), gate.data<T>(), up.data<T>(),
                                          gate.numel(), again.data<T>()});
    });
    propagate_to_weight(again, weight, dy);
    if (gate.requires_grad()) gate.add_grad(std::move(dgate));
    if (up.requires_grad()) up.add_grad(std::move(dup));
  });
}

}  // namespace motley
