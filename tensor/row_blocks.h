// For ops that take their rows in blocks: what a block's kernels hand on is still in the second cache when the next one
// reads it, and never a whole tensor.
#pragma once

#include <algorithm>
#include <optional>

#include "kernels/matmul.h"
#include "kernels/packed_matrix.h"
#include "kernels/parallel.h"
#include "tensor/ops.h"

namespace motley::ops {

/// Rows of a block. Each block reads all weights again, so it is larger where the second cache does not hold them.
constexpr int64_t block_rows(int64_t elements_of_weights) {
  return elements_of_weights <= int64_t{1} << 18 ? 128 : 512;
}
/// body(first row, rows) for every block of `rows` rows, side by side.
template <class Body>
void for_each_block(int64_t rows, int64_t block, Body body) {
  kernels::parallel_for((rows + block - 1) / block, 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * block; first < std::min(rows, end * block); first += block)
      body(first, std::min(block, rows - first));
  });
}

/// Rows [first, first + count) of a matrix, to be read and to be written; all of them.
kernels::ConstMatrix rows_at(const Tensor& x, int64_t first, int64_t count);
kernels::Matrix rows_to(const Tensor& x, int64_t first, int64_t count);
kernels::ConstMatrix matrix(const Tensor& x);

/// The second operand of products on the CPU whose `rows` rows come in blocks: packed once, unless that costs more than
/// it saves. What `b` views must outlive it.
class SharedOperand {
 public:
  SharedOperand(const kernels::ConstMatrix& b, int64_t rows);
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
  explicit WeightGradient(const Tensor& weight, Kernels choice = Kernels::invariant)
      : weight_(weight), choice_(choice) {}
  void add(const kernels::ConstMatrix& dy, const kernels::ConstMatrix& x);
  /// After the last block.
  void finish();

 private:
  const Tensor& weight_;
  Kernels choice_;
  Tensor sum_;  // the gradient itself where it has the compute type, else a part to be added to it
};

}  // namespace motley::ops
