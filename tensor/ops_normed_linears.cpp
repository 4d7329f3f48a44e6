#include <algorithm>
#include <utility>

#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "tensor/ops.h"
#include "tensor/ops_common.h"
#include "tensor/row_blocks.h"

namespace motley {

using kernels::Compute;
using kernels::transposed;
using kernels::visit_dtype;
using ops::rows_at;
using ops::rows_to;

namespace {

void check(const Tensor& x, const NormedLinears& layer) {
  MOTLEY_CHECK(x.shape().size() == 2 && layer.gain.shape() == Shape{x.dim(1)} && layer.gain.dtype() == x.dtype(),
               "normed_linears", "x must be [rows, width], and the gain have an element per column, of its type");
  for (const Tensor& weight : layer.weights) {
    MOTLEY_CHECK(weight.shape().size() == 2 && weight.dim(1) == x.dim(1), "normed_linears",
                 "each weight must be [outputs, width]");
    MOTLEY_CHECK((weight.dtype() == DType::f64) == (x.dtype() == DType::f64), "normed_linears",
                 "fp64 does not mix with other types");
    ops::device_of("normed_linears", x, weight);
  }
}

std::vector<Tensor> in_parts(const Tensor& x, const NormedLinears& layer) {
  const Tensor n = rms_norm(x, layer.gain, layer.eps);
  std::vector<Tensor> results;
  for (const Tensor& weight : layer.weights) results.push_back(linear(n, weight, layer.k_tile, layer.choice));
  return results;
}

std::vector<ops::SharedOperand> operands(const NormedLinears& layer, bool transpose, int64_t rows) {
  std::vector<ops::SharedOperand> all;
  for (const Tensor& weight : layer.weights)
    all.emplace_back(transpose ? transposed(ops::matrix(weight)) : ops::matrix(weight), rows);
  return all;
}
int64_t block_rows(const NormedLinears& layer) {
  int64_t elements = 0;
  for (const Tensor& weight : layer.weights) elements += weight.numel();
  return ops::block_rows(elements);
}

/// Adds what the results' gradients dys (undefined: none came) say about x, the gain and the weights. The last result
/// comes first, as if each had its own node.
class NormedLinearsBackward {
 public:
  NormedLinearsBackward(const Tensor& x, const NormedLinears& layer, const Tensor& rstd, const std::vector<Tensor>& dys)
      : x_(x),
        layer_(layer),
        rstd_(rstd),
        dys_(dys),
        block_(block_rows(layer)),
        group_(std::min(x.dim(0), block_ * kernels::compute_threads())),
        weights_(operands(layer, true, x.dim(0))),
        n_(Tensor::empty({group_, x.dim(1)}, x.dtype())),
        dn_(Tensor::empty({group_, x.dim(1)}, x.dtype())) {}

  /// dx: a gradient to add to, or to be set where `sets`. dgain: a chain over rows, [width] in the compute type.
  void run(const Tensor& dx, bool sets, const Tensor& dgain) {
    std::vector<ops::WeightGradient> gradients(layer_.weights.begin(), layer_.weights.end());
    const Tensor part = sets ? Tensor() : Tensor::empty(dn_.shape(), x_.dtype());
    for (int64_t first = 0; first < x_.dim(0); first += group_) {
      const int64_t count = std::min(group_, x_.dim(0) - first);
      ops::for_each_block(count, block_, [&](int64_t at, int64_t rows) { differentiate(first + at, at, rows); });
      for (size_t i = dys_.size(); i-- > 0;) {
        if (dys_[i].defined()) gradients[i].add(rows_at(dys_[i], first, count), rows_at(n_, 0, count));
      }
      norm_backward(dx, part, dgain, first, count);
    }
    for (ops::WeightGradient& gradient : gradients) gradient.finish();
  }

 private:
  /// Rows from `first` on, at place `at` of the group.
  void differentiate(int64_t first, int64_t at, int64_t count) {
    visit_dtype(x_.dtype(), [&]<class T>(T) {
      const int64_t cols = x_.dim(1);
      kernels::cpu::rms_norm<T>({n_.data<T>() + at * cols, nullptr, x_.data<T>() + first * cols, layer_.gain.data<T>(),
                                 count, cols, layer_.eps});
    });
    kernels::ConstMatrix before;
    for (size_t i = dys_.size(); i-- > 0;) {
      if (!dys_[i].defined()) continue;
      weights_[i].multiply(rows_at(dys_[i], first, count), rows_to(dn_, at, count), 0, before);
      before = rows_at(dn_, at, count);
    }
  }
  void norm_backward(const Tensor& dx, const Tensor& part, const Tensor& dgain, int64_t first, int64_t count) {
    visit_dtype(x_.dtype(), [&]<class T>(T) {
      const int64_t cols = x_.dim(1), in = first * cols;
      T* sum = dx.data<T>() + in;
      T* out = part.defined() ? part.data<T>() : sum;
      kernels::cpu::rms_norm_backward<T>({out, dgain.data<Compute<T>>(), dn_.data<T>(), x_.data<T>() + in,
                                          layer_.gain.data<T>(), rstd_.data<Compute<T>>() + first, count, cols});
      if (part.defined()) kernels::cpu::add<T>(sum, sum, out, count * cols);
    });
  }

  const Tensor& x_;
  const NormedLinears& layer_;
  const Tensor& rstd_;
  const std::vector<Tensor>& dys_;
  int64_t block_, group_;  // rows
  std::vector<ops::SharedOperand> weights_;
  Tensor n_, dn_;  // of one group
};

void propagate(const Tensor& x, const NormedLinears& layer, const Tensor& rstd, const std::vector<Tensor>& dys) {
  const Tensor before = x.growing_grad();
  Tensor dx = before.defined() ? before : Tensor::empty(x.shape(), x.dtype());
  const auto run = [&](const Tensor& dgain) {
    NormedLinearsBackward(x, layer, rstd, dys).run(dx, !before.defined(), dgain);
  };
  if (layer.gain.requires_grad())
    ops::accumulate(layer.gain, run);
  else
    run(Tensor::zeros(layer.gain.shape(), kernels::compute_dtype(layer.gain.dtype())));
  if (!before.defined() && x.requires_grad()) x.add_grad(std::move(dx));
}

/// Gives the results one history: their gradients are gathered until the last of them has come.
std::vector<Tensor> record_all(std::vector<Tensor> results, const Tensor& x, const NormedLinears& layer,
                               const Tensor& rstd) {
  std::vector<Tensor> inputs = layer.weights;
  inputs.insert(inputs.end(), {x, layer.gain});
  const auto dys = std::make_shared<std::vector<Tensor>>(results.size());
  const Tensor all = record("normed_linears", Tensor::empty({0}, x.dtype()), inputs,
                            [=](const Tensor&) { propagate(x, layer, rstd, std::exchange(*dys, {})); });
  if (!all.requires_grad()) return results;
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = record("normed_linears", results[i], {all}, [=](const Tensor& dy) {
      (*dys)[i] = dy;
      all.add_grad(Tensor::empty({0}, x.dtype()));
    });
  }
  return results;
}

}  // namespace

std::vector<Tensor> normed_linears(const Tensor& x, const NormedLinears& layer) {
  check(x, layer);
  const bool on_cpu = ops::device_of("normed_linears", x, layer.gain).kind == kernels::DeviceKind::cpu;
  if (x.dtype() == DType::f64 || !on_cpu) return in_parts(x, layer);
  const int64_t rows = x.dim(0), cols = x.dim(1);
  const Tensor rstd = Tensor::empty({rows}, kernels::compute_dtype(x.dtype()));
  std::vector<Tensor> results;
  for (const Tensor& weight : layer.weights) results.push_back(Tensor::empty({rows, weight.dim(0)}, x.dtype()));
  const std::vector<ops::SharedOperand> weights = operands(layer, false, rows);
  ops::for_each_block(rows, block_rows(layer), [&](int64_t first, int64_t count) {
    const Tensor n = Tensor::empty({count, cols}, x.dtype());
    visit_dtype(x.dtype(), [&]<class T>(T) {
      kernels::cpu::rms_norm<T>({n.data<T>(), rstd.data<Compute<T>>() + first, x.data<T>() + first * cols,
                                 layer.gain.data<T>(), count, cols, layer.eps});
    });
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i].multiply(ops::matrix(n), rows_to(results[i], first, count), layer.k_tile);
  });
  return record_all(std::move(results), x, layer, rstd);
}

}  // namespace motley
