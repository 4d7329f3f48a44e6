#include <algorithm>

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
using ops::SharedOperand;

namespace {

void check(const Tensor& x, const FeedForward& layer) {
  const auto is = [&](const Tensor& weight, int64_t rows, int64_t cols) { return weight.shape() == Shape{rows, cols}; };
  MOTLEY_CHECK(x.shape().size() == 2, "feed_forward", "x must be [rows, width]");
  const int64_t width = x.dim(1), inner = layer.gate.dim(0);
  MOTLEY_CHECK(layer.gain.shape() == Shape{width} && layer.gain.dtype() == x.dtype(), "feed_forward",
               "the gain must have one element per column of x, of its type");
  MOTLEY_CHECK(is(layer.gate, inner, width) && is(layer.up, inner, width) && is(layer.down, width, inner),
               "feed_forward", "gate and up must be [inner, width], down [width, inner]");
  for (const Tensor* weight : {&layer.gate, &layer.up, &layer.down}) {
    MOTLEY_CHECK((weight->dtype() == DType::f64) == (x.dtype() == DType::f64), "feed_forward",
                 "fp64 does not mix with other types");
  }
}

/// The op from its parts, each with its own history.
Tensor in_parts(const Tensor& x, const FeedForward& layer) {
  const Tensor n = rms_norm(x, layer.gain, layer.eps);
  const auto product = [&](const Tensor& weight) { return linear(n, weight, layer.k_tile, layer.choice); };
  const Tensor gate = product(layer.gate), up = product(layer.up);
  return linear_added(silu_mul(gate, up), layer.down, x, layer.k_tile, layer.choice);
}

int64_t block_rows(const FeedForward& layer) {
  return ops::block_rows(layer.gate.numel() + layer.up.numel() + layer.down.numel());
}

/// What the forward pass keeps: [rows], and twice [rows, inner].
struct Kept {
  Tensor rstd, gate, up;
};
Kept room_for(int64_t rows, int64_t inner, DType dtype) {
  return {Tensor::empty({rows}, kernels::compute_dtype(dtype)), Tensor::empty({rows, inner}, dtype),
          Tensor::empty({rows, inner}, dtype)};
}

/// Rows [first, first + count) of x normed into n. rstd: [count], null if not wanted.
template <class T>
void norm_block(T* n, Compute<T>* rstd, const Tensor& x, const FeedForward& layer, int64_t first, int64_t count) {
  const int64_t cols = x.dim(1);
  kernels::cpu::rms_norm<T>({n, rstd, x.data<T>() + first * cols, layer.gain.data<T>(), count, cols, layer.eps});
}

/// Rows [first, first + count) of y; what they keep goes to rows from `at` on.
void forward_block(const Tensor& y, const Kept& kept, int64_t at, const Tensor& x, const FeedForward& layer,
                   const SharedOperand (&weights)[3], int64_t first, int64_t count) {
  const Tensor n = Tensor::empty({count, x.dim(1)}, x.dtype());
  const Tensor gated = Tensor::empty({count, layer.gate.dim(0)}, x.dtype());
  visit_dtype(x.dtype(), [&]<class T>(T) {
    norm_block(n.data<T>(), kept.rstd.data<Compute<T>>() + at, x, layer, first, count);
    weights[0].multiply(ops::matrix(n), rows_to(kept.gate, at, count), layer.k_tile);
    weights[1].multiply(ops::matrix(n), rows_to(kept.up, at, count), layer.k_tile);
    const int64_t begin = at * gated.dim(1);
    kernels::cpu::silu_mul<T>({gated.data<T>(), kept.gate.data<T>() + begin, kept.up.data<T>() + begin, gated.numel()});
  });
  weights[2].multiply(ops::matrix(gated), rows_to(y, first, count), layer.k_tile, rows_at(x, first, count));
}

/// The backward pass. Blocks of one group are differentiated side by side; then the group's part of each weight's
/// gradient is added, rows ascending.
class Backward {
 public:
  Backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const FeedForward& layer, const Kept& kept)
      : dx_(dx),
        dy_(dy),
        x_(x),
        layer_(layer),
        kept_(kept),
        block_(block_rows(layer)),
        group_(std::min(x.dim(0), block_ * kernels::compute_threads())),
        gate_(transposed(ops::matrix(layer.gate)), x.dim(0)),
        up_(transposed(ops::matrix(layer.up)), x.dim(0)),
        down_(transposed(ops::matrix(layer.down)), x.dim(0)),
        n_(Tensor::empty({group_, x.dim(1)}, x.dtype())),
        dn_(Tensor::empty({group_, x.dim(1)}, x.dtype())),
        dgate_(Tensor::empty({group_, layer.gate.dim(0)}, x.dtype())),
        dup_(Tensor::empty(dgate_.shape(), x.dtype())),
        gated_(Tensor::empty(dgate_.shape(), x.dtype())) {}

  /// dgain: a chain over rows, [width] in the compute type. dx with what comes through the residual, or without.
  void run(const Tensor& dgain, bool with_residual) {
    ops::WeightGradient dgate(layer_.gate), dup(layer_.up), ddown(layer_.down);
    for (int64_t first = 0; first < x_.dim(0); first += group_) {
      const int64_t count = std::min(group_, x_.dim(0) - first);
      ops::for_each_block(count, block_, [&](int64_t at, int64_t rows) { differentiate(first + at, at, rows); });
      ddown.add(rows_at(dy_, first, count), rows_at(gated_, 0, count));
      dup.add(rows_at(dup_, 0, count), rows_at(n_, 0, count));
      dgate.add(rows_at(dgate_, 0, count), rows_at(n_, 0, count));
      norm_backward(dgain, with_residual, first, count);
    }
    for (ops::WeightGradient* gradient : {&ddown, &dup, &dgate}) gradient->finish();
  }

 private:
  /// Rows from `first` on, at place `at` of the group.
  void differentiate(int64_t first, int64_t at, int64_t count) {
    down_.multiply(rows_at(dy_, first, count), rows_to(dgate_, at, count));  // silu_mul's gradient
    visit_dtype(x_.dtype(), [&]<class T>(T) {
      const int64_t inner = dgate_.dim(1), in = first * inner, out = at * inner;
      kernels::cpu::silu_mul_backward<T>({dgate_.data<T>() + out, dup_.data<T>() + out, dgate_.data<T>() + out,
                                          kept_.gate.data<T>() + in, kept_.up.data<T>() + in, count * inner,
                                          gated_.data<T>() + out});
      norm_block<T>(n_.data<T>() + at * x_.dim(1), nullptr, x_, layer_, first, count);
    });
    up_.multiply(rows_at(dup_, at, count), rows_to(dn_, at, count));
    gate_.multiply(rows_at(dgate_, at, count), rows_to(dn_, at, count), 0, rows_at(dn_, at, count));
  }
  void norm_backward(const Tensor& dgain, bool with_residual, int64_t first, int64_t count) {
    visit_dtype(x_.dtype(), [&]<class T>(T) {
      const int64_t cols = x_.dim(1), in = first * cols;
      T* dx = dx_.data<T>() + in;
      kernels::cpu::rms_norm_backward<T>({dx, dgain.data<Compute<T>>(), dn_.data<T>(), x_.data<T>() + in,
                                          layer_.gain.data<T>(), kept_.rstd.data<Compute<T>>() + first, count, cols});
      if (with_residual) kernels::cpu::add<T>(dx, dy_.data<T>() + in, dx, count * cols);
    });
  }

  const Tensor &dx_, &dy_, &x_;
  const FeedForward& layer_;
  const Kept& kept_;
  int64_t block_, group_;  // rows
  SharedOperand gate_, up_, down_;
  Tensor n_, dn_, dgate_, dup_, gated_;  // of one group
};

}  // namespace

Tensor feed_forward(const Tensor& x, const FeedForward& layer) {
  check(x, layer);
  const bool on_cpu =
      ops::device_of("feed_forward", x, layer.gain, layer.gate, layer.up, layer.down).kind == kernels::DeviceKind::cpu;
  if (x.dtype() == DType::f64 || !on_cpu) return in_parts(x, layer);
  const int64_t rows = x.dim(0), inner = layer.gate.dim(0);
  const std::vector<Tensor> inputs{x, layer.gain, layer.gate, layer.up, layer.down};
  const bool recorded = grad_enabled() && std::any_of(inputs.begin(), inputs.end(),
                                                      [](const Tensor& input) { return input.requires_grad(); });
  const Tensor y = Tensor::empty(x.shape(), x.dtype());
  const Kept kept = room_for(recorded ? rows : 0, inner, x.dtype());
  const SharedOperand weights[] = {
      {ops::matrix(layer.gate), rows}, {ops::matrix(layer.up), rows}, {ops::matrix(layer.down), rows}};
  ops::for_each_block(rows, block_rows(layer), [&](int64_t first, int64_t count) {
    if (recorded)
      forward_block(y, kept, first, x, layer, weights, first, count);
    else
      forward_block(y, room_for(count, inner, x.dtype()), 0, x, layer, weights, first, count);
  });
  return record("feed_forward", y, inputs, [x, layer, kept](const Tensor& dy) {
    Tensor dx = Tensor::empty(x.shape(), x.dtype());
    // A gradient of another type than x's takes what comes through the residual apart, before it is rounded.
    const bool apart = x.grad_dtype() != x.dtype();
    const auto run = [&](const Tensor& dgain) { Backward(dx, dy, x, layer, kept).run(dgain, !apart); };
    if (layer.gain.requires_grad())
      ops::accumulate(layer.gain, run);
    else
      run(Tensor::zeros(layer.gain.shape(), kernels::compute_dtype(layer.gain.dtype())));
    if (x.requires_grad() && apart) x.add_grad(dy);
    if (x.requires_grad()) x.add_grad(std::move(dx));
  });
}

}  // namespace motley
