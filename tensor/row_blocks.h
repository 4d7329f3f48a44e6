// For ops that take their rows in blocks: what a block's kernels hand on is still in the second cache when the next one
// reads it, and never a whole tensor.
#pragma once

#include <optional>

#include "kernels/matmul.h"
#include "kernels/packed_matrix.h"
#include "tensor/tensor.h"

namespace motley::ops {

constexpr int64_t kBlockRows = 128;
constexpr int64_t block_count(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

/// Rows [first, first + count) of a matrix, to be read and to be written; all of them.
kernels::ConstMatrix rows_at(const Tensor& x, int64_t first, int64_t count);
kernels::Matrix rows_to(const Tensor& x, int64_t first, int64_t count);
kernels::ConstMatrix matrix(const Tensor& x);

/// The second operand of products on the CPU whose rows come in blocks: packed once where there is more than one block.
/// What `b` views must outlive it.
class SharedOperand {
 public:
  SharedOperand(const kernels::ConstMatrix& b, int64_t blocks);
  /// c = a b^T, or with a residual c = residual + a b^T. c has a's rows.
  void multiply(const kernels::ConstMatrix& a, const kernels::Matrix& c, int64_t k_tile = 0,
                const kernels::ConstMatrix& residual = {}) const;

 private:
  kernels::ConstMatrix b_;
  std::optional<kernels::PackedMatrix> packed_;
};

/// The gradient of the weight of y = x weight^T, rows in blocks that follow each other: one chain over all rows, which
/// goes on from the gradient that is there. Nothing if the weight wants none.
class WeightGradient {
 public:
  explicit WeightGradient(const Tensor& weight) : weight_(weight) {}
  void add(const kernels::ConstMatrix& dy, const kernels::ConstMatrix& x);
  /// After the last block.
  void finish();

 private:
  const Tensor& weight_;
  Tensor sum_;  // the gradient itself where it has the compute type, else a part to be added to it
};

}  // namespace motley::ops
