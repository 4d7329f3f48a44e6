#include <limits>

#include "kernels/arrays.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "tensor/ops.h"
#include "tensor/ops_common.h"
#include "tensor/row_blocks.h"

namespace motley {

using kernels::Compute;
using kernels::row_major;
using kernels::transposed;
using kernels::visit_dtype;

namespace {

/// The rows of a matrix at `list`.
Tensor rows_at(const Tensor& table, const ops::DeviceList<int32_t>& list) {
  Tensor y = Tensor::empty({list.size(), table.dim(1)}, table.dtype(), table.device());
  visit_dtype(table.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(table.device(), embedding<T>,
               {y.pointer<T>(), table.pointer<T>(), list.data(), list.size(), table.dim(1)});
  });
  return y;
}

}  // namespace

Tensor embedding(const Tensor& table, std::span<const int32_t> ids) {
  MOTLEY_CHECK(table.shape().size() == 2, "embedding", "the table must be a matrix");
  for (const int32_t id : ids) {
    MOTLEY_CHECK(id >= 0 && id < table.dim(0), "embedding",
                 "id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(table.dim(0)));
  }
  const ops::DeviceList<int32_t> list(table.device(), ids);
  Tensor y = rows_at(table, list);
  if (!grad_enabled() || !table.requires_grad()) return y;
  return record("embedding", y, {table}, [table, kept = std::vector(ids.begin(), ids.end())](const Tensor& dy) {
    const auto run = [&](const Tensor& sums, std::span<const int32_t> rows) {
      const ops::DeviceList<int32_t> places(table.device(), rows);
      visit_dtype(table.dtype(), [&]<class T>(T) {
        MOTLEY_RUN(table.device(), embedding_backward<T>,
                   {sums.pointer<Compute<T>>(), dy.pointer<T>(), places.data(), dy.dim(0), dy.dim(1)});
      });
    };
    const DType compute = kernels::compute_dtype(table.dtype());
    if (table.grad_dtype() == compute) {
      const Tensor::RowChain chain = table.row_chain(kept);
      return run(chain.sums, chain.places);
    }
    Tensor part = Tensor::zeros(table.shape(), compute, table.device());
    run(part, kept);
    table.add_grad(std::move(part));
  });
}

Tensor gather_rows(const Tensor& x, std::span<const int64_t> rows) {
  MOTLEY_CHECK(x.shape().size() == 2, "gather_rows", "the operand must be a matrix");
  MOTLEY_CHECK(x.dim(0) <= std::numeric_limits<int32_t>::max(), "gather_rows", "too many rows");
  for (const int64_t row : rows) {
    MOTLEY_CHECK(row >= 0 && row < x.dim(0), "gather_rows",
                 "row " + std::to_string(row) + " of " + std::to_string(x.dim(0)));
  }
  const std::vector<int32_t> ids(rows.begin(), rows.end());
  const ops::DeviceList<int32_t> list(x.device(), ids);
  Tensor y = rows_at(x, list);
  if (!grad_enabled() || !x.requires_grad()) return y;
  return record("gather_rows", y, {x}, [x, kept = list.kept()](const Tensor& dy) {
    Tensor dx = Tensor::zeros(x.shape(), x.dtype(), x.device());
    visit_dtype(x.dtype(), [&]<class T>(T) {
      MOTLEY_RUN(x.device(), add_rows<T>, {dx.pointer<T>(), dy.pointer<T>(), kept.data(), kept.size(), x.dim(1)});
    });
    x.add_grad(std::move(dx));
  });
}

Tensor rms_norm(const Tensor& x, const Tensor& gain, double eps) {
  MOTLEY_CHECK(gain.shape() == Shape{x.dim(-1)}, "rms_norm", "gain must have one element per column");
  MOTLEY_CHECK(x.dtype() == gain.dtype(), "rms_norm", "gain has another type than x");
  const Device& device = ops::device_of("rms_norm", x, gain);
  const int64_t rows = ops::rows_of(x), cols = x.dim(-1);
  Tensor y = ops::empty_like(x);
  const Tensor rstd = Tensor::empty({rows}, kernels::compute_dtype(x.dtype()), device);
  visit_dtype(x.dtype(), [&]<class T>(T) {
    MOTLEY_RUN(device, rms_norm<T>,
               {y.pointer<T>(), rstd.pointer<Compute<T>>(), x.pointer<T>(), gain.pointer<T>(), rows, cols, eps});
  });
  return record("rms_norm", y, {x, gain}, [x, gain, rstd, rows, cols](const Tensor& dy) {
    Tensor dx = ops::empty_like(x);
    const auto run = [&](const Tensor& dgain) {
      visit_dtype(x.dtype(), [&]<class T>(T) {
        MOTLEY_RUN(x.device(), rms_norm_backward<T>,
                   {dx.pointer<T>(), dgain.pointer<Compute<T>>(), dy.pointer<T>(), x.pointer<T>(), gain.pointer<T>(),
                    rstd.pointer<Compute<T>>(), rows, cols});
      });
    };
    if (gain.requires_grad()) {
      ops::accumulate(gain, run);
    } else {
      run(Tensor::zeros(gain.shape(), kernels::compute_dtype(gain.dtype()), gain.device()));
    }
    if (x.requires_grad()) x.add_grad(std::move(dx));
  });
}

namespace {

using ops::matrix;

kernels::MatmulArgs product_of(const kernels::ConstMatrix& a, const kernels::ConstMatrix& b, const Tensor& c) {
  kernels::MatmulArgs args;
  args.a = a;
  args.b = b;
  args.c = row_major(c.raw(), c.dtype(), a.rows, b.rows);
  return args;
}

/// x's part of the gradient of y = x weight^T. A gradient that x has already is added where the product is stored.
void propagate_to_input(const Tensor& x, const Tensor& weight, const Tensor& dy, Kernels choice) {
  const Tensor before = x.dtype() == DType::f64 ? Tensor() : x.growing_grad();
  Tensor dx = before.defined() ? before : ops::empty_like(x);
  kernels::MatmulArgs args = product_of(matrix(dy), transposed(matrix(weight)), dx);
  if (before.defined()) args.residual = matrix(before);
  ops::multiply(x.device(), args, choice);
  if (!before.defined()) x.add_grad(std::move(dx));
}

void propagate_to_weight(const Tensor& x, const Tensor& weight, const Tensor& dy, Kernels choice) {
  ops::WeightGradient gradient(weight, choice);
  gradient.add(matrix(dy), matrix(x));
  gradient.finish();
}

void check_linear(const Tensor& x, const Tensor& weight) {
  MOTLEY_CHECK(x.shape().size() == 2 && weight.shape().size() == 2 && x.dim(1) == weight.dim(1), "linear",
               "x must be [rows, inputs] and the weight [outputs, inputs]");
  MOTLEY_CHECK((x.dtype() == DType::f64) == (weight.dtype() == DType::f64), "linear",
               "fp64 does not mix with other types");
  ops::device_of("linear", x, weight);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, int64_t k_tile, Kernels choice) {
  check_linear(x, weight);
  Tensor y = Tensor::empty({x.dim(0), weight.dim(0)}, x.dtype(), x.device());
  kernels::MatmulArgs args = product_of(matrix(x), matrix(weight), y);
  args.k_tile = k_tile;
  ops::multiply(x.device(), args, choice);
  return record("linear", y, {x, weight}, [x, weight, choice](const Tensor& dy) {
    if (x.requires_grad()) propagate_to_input(x, weight, dy, choice);
    propagate_to_weight(x, weight, dy, choice);
  });
}

Tensor linear_added(const Tensor& x, const Tensor& weight, const Tensor& residual, int64_t k_tile, Kernels choice) {
  check_linear(x, weight);
  if (x.dtype() == DType::f64) return add(residual, linear(x, weight, k_tile, choice));
  MOTLEY_CHECK(residual.shape() == Shape({x.dim(0), weight.dim(0)}) && residual.dtype() == x.dtype(), "linear_added",
               "the residual must have the product's shape and type");
  ops::device_of("linear_added", x, residual);
  const Tensor y = ops::empty_like(residual);
  kernels::MatmulArgs args = product_of(matrix(x), matrix(weight), y);
  args.k_tile = k_tile;
  args.residual = matrix(residual);
  ops::multiply(x.device(), args, choice);
  return record("linear_added", y, {x, weight, residual}, [x, weight, residual, choice](const Tensor& dy) {
    if (residual.requires_grad()) residual.add_grad(dy);
    if (x.requires_grad()) propagate_to_input(x, weight, dy, choice);
    propagate_to_weight(x, weight, dy, choice);
  });
}

}  // namespace motley
