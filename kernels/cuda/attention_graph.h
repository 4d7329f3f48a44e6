// Attention over packed sequences as graphs of cuDNN's, from which it makes one kernel.
#pragma once

#include "kernels/cuda/cudnn_graph.h"

namespace motley::kernels::cuda::cudnn {

/// A graph is compiled for at most so many sequences of at most so many rows; fewer and shorter ones run on it.
struct AttentionShape {
  int64_t sequences, length, heads, kv_heads, head_dim;
  cudnnDataType_t type;  // CUDNN_DATA_BFLOAT16 or CUDNN_DATA_HALF
  float scale;
  auto operator<=>(const AttentionShape&) const = default;
};

/// Tensors of the caller's by number. All are packed as kernels/attention.h has them; y, lse and their gradients too.
struct AttentionTensors {
  int q, k, v, y, lse, lengths;         // lengths: int32 [sequences]
  int q_starts, kv_starts, lse_starts;  // int64 [sequences + 1]: where a sequence begins, in elements of q, k and lse
  int dy, dq, dk, dv;                   // backward
  // Backward, room of the caller's: sums of a row's dy y, like lse; dq in fp32; dk and dv of every query head, in the
  // type of q, [rows, heads, head_dim], where heads share theirs.
  int row_sums, dq_sums, dk_heads, dv_heads;
};

struct AttentionGraph {
  Graph graph;
  AttentionTensors tensors;
};
AttentionGraph forward_graph(const AttentionShape& shape);
AttentionGraph backward_graph(const AttentionShape& shape);

}  // namespace motley::kernels::cuda::cudnn
