// The inside of a tensor, shared by tensor.cpp, autograd.cpp and the ops that shape the graph.
#pragma once

#include <memory>

#include "tensor/tensor.h"

namespace motley {

/// One recorded op.
struct GraphNode {
  uint64_t sequence = 0;  // order of creation
  std::string op;
  std::vector<Tensor> inputs;
  std::function<void(const Tensor&)> closure;
  bool released = false;
};

/// Sums for some rows of a matrix, the others being zero.
struct RowSums {
  std::vector<int32_t> place;  // of each row of the matrix in `sums`; -1: it has none
  std::vector<int32_t> rows;   // which have a place, in its order
  Tensor sums;                 // [at least as many, columns]
};

struct Tensor::Impl {
  Impl(Shape shape_, DType dtype_, const Device& device_, std::shared_ptr<void> data_);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  Shape shape;
  int64_t numel = 0;
  DType dtype;
  Device device;
  std::shared_ptr<void> data;
  DType grad_dtype;
  bool leaf = false;                 // a gradient is wanted
  std::shared_ptr<Impl> grad_owner;  // a cast of a leaf: its gradient is the leaf's
  Tensor grad;
  std::unique_ptr<RowSums> row_sums;  // of a leaf: row_chain's, not yet part of the gradient
  bool grad_is_old = false;           // a leaf's was asked to be zero, and is until somebody reads it
  std::shared_ptr<GraphNode> node;

  Impl& owner() { return grad_owner ? *grad_owner : *this; }
  bool wants_grad() const { return leaf || grad_owner || node; }
  /// Whether the gradient, which is defined, is no other tensor's too: ops may hand one on to several inputs.
  bool grad_is_ours() const { return grad.impl_.use_count() == 1 && grad.impl_->data.use_count() == 1; }
};

}  // namespace motley
