// The graphs that cuDNN's engines know as flash attention; their operations and order follow its documentation
// ("Fused flash attention fprop" and "bprop") and the MIT-licensed cudnn-frontend, node
// scaled_dot_product_flash_attention.h.
#include "kernels/cuda/attention_graph.h"

#include <limits>

namespace motley::kernels::cuda::cudnn {
namespace {

constexpr int kNone = -1;

class Builder {
 public:
  explicit Builder(const AttentionShape& shape) : s_(shape) {
    const Shape ones{1, 1, 1, 1};
    t_ = {};
    t_.lengths = graph_.tensor({{s_.sequences, 1, 1, 1}, ones, CUDNN_DATA_INT32});
    const TensorSpec starts{{s_.sequences + 1, 1, 1, 1}, ones, CUDNN_DATA_INT64};
    t_.q_starts = graph_.tensor(starts);
    t_.kv_starts = graph_.tensor(starts);
    t_.lse_starts = graph_.tensor(starts);
  }

  AttentionGraph forward() {
    t_.q = graph_.tensor(rows(s_.heads, t_.q_starts));
    t_.k = graph_.tensor(turned(rows(s_.kv_heads, t_.kv_starts)));
    t_.v = graph_.tensor(rows(s_.kv_heads, t_.kv_starts));
    t_.y = graph_.tensor(rows(s_.heads, t_.q_starts));
    const int scores = masked(scaled_scores());
    const int largest = graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, per_row());
    const int exponentials =
        graph_.pointwise(CUDNN_POINTWISE_EXP, graph_.pointwise(CUDNN_POINTWISE_SUB, scores, largest));
    const int sum = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, per_row());
    t_.lse = graph_.tensor(lse());
    graph_.pointwise(CUDNN_POINTWISE_ADD, largest, graph_.pointwise(CUDNN_POINTWISE_LOG, sum), kNone, {t_.lse});
    const int p = graph_.temporary(scores_spec(s_.type));
    graph_.pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, kNone, {p});
    graph_.matmul_to(p, t_.v, t_.y, {t_.lengths, kNone, t_.lengths});
    return {std::move(graph_), t_};
  }

  AttentionGraph backward() {
    t_.q = graph_.tensor(rows(s_.heads, t_.q_starts));
    t_.k = graph_.tensor(turned(rows(s_.kv_heads, t_.kv_starts)));
    t_.v = graph_.tensor(turned(rows(s_.kv_heads, t_.kv_starts)));
    t_.y = graph_.tensor(rows(s_.heads, t_.q_starts));
    t_.dy = graph_.tensor(rows(s_.heads, t_.q_starts));
    t_.dq = graph_.tensor(rows(s_.heads, t_.q_starts));
    t_.dk = graph_.tensor(rows(s_.kv_heads, t_.kv_starts));
    t_.dv = graph_.tensor(rows(s_.kv_heads, t_.kv_starts));
    t_.lse = graph_.tensor(lse());
    t_.row_sums = graph_.tensor(lse());

    // row_sums = sum over head_dim of dy y; times 1, where a graph with dropout has a factor
    const int products = graph_.pointwise(CUDNN_POINTWISE_MUL, t_.dy, t_.y);
    graph_.pointwise(CUDNN_POINTWISE_MUL, graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, per_row()),
                     graph_.scalar(1.0f), kNone, {t_.row_sums});

    const int scale = graph_.scalar(s_.scale);
    int scores = graph_.matmul(t_.q, t_.k, scores_spec(CUDNN_DATA_FLOAT), {t_.lengths, t_.lengths, kNone});
    scores = padded(graph_.pointwise(CUDNN_POINTWISE_MUL, scores, scale));
    const int p = graph_.pointwise(CUDNN_POINTWISE_EXP, causal(graph_.pointwise(CUDNN_POINTWISE_SUB, scores, t_.lse)));
    // dv = p^T dy
    sum_of_heads(graph_.reshape(p, turned(scores_spec(s_.type))), t_.dy, t_.dv, t_.dv_heads);
    // ds = p (dy v^T - row_sums) scale; dk = ds^T q; dq = ds k
    int ds = graph_.matmul(t_.dy, t_.v, scores_spec(CUDNN_DATA_FLOAT), {t_.lengths, t_.lengths, kNone});
    ds = graph_.pointwise(CUDNN_POINTWISE_SUB, ds, t_.row_sums);
    ds = graph_.pointwise(CUDNN_POINTWISE_MUL, ds, p);
    // The next product takes it in the type of q.
    const int rounded = graph_.temporary(scores_spec(s_.type));
    graph_.pointwise(CUDNN_POINTWISE_MUL, ds, scale, kNone, {rounded});
    sum_of_heads(graph_.reshape(rounded, turned(scores_spec(s_.type))), t_.q, t_.dk, t_.dk_heads);
    const int k = graph_.reshape(t_.k, rows(s_.kv_heads, t_.kv_starts));
    TensorSpec sums = rows(s_.heads, t_.q_starts);
    sums.type = CUDNN_DATA_FLOAT;
    t_.dq_sums = graph_.tensor(sums);
    graph_.matmul_to(rounded, k, t_.dq_sums, {t_.lengths, kNone, t_.lengths});
    graph_.pointwise(CUDNN_POINTWISE_IDENTITY, t_.dq_sums, kNone, kNone, {t_.dq});
    return {std::move(graph_), t_};
  }

 private:
  /// [rows, heads, head_dim] as [sequences, heads, length, head_dim].
  TensorSpec rows(int64_t heads, int starts) const {
    const int64_t row = heads * s_.head_dim;
    return {{s_.sequences, heads, s_.length, s_.head_dim}, {s_.length * row, s_.head_dim, row, 1}, s_.type, starts};
  }
  /// [rows, heads].
  TensorSpec lse() const {
    return {{s_.sequences, s_.heads, s_.length, 1},
            {s_.length * s_.heads, 1, s_.heads, 1},
            CUDNN_DATA_FLOAT,
            t_.lse_starts};
  }
  static TensorSpec turned(TensorSpec spec) {
    std::swap(spec.dims[2], spec.dims[3]);
    std::swap(spec.strides[2], spec.strides[3]);
    return spec;
  }
  TensorSpec scores_spec(cudnnDataType_t type) const {
    const int64_t l = s_.length;
    return {{s_.sequences, s_.heads, l, l}, {s_.heads * l * l, l * l, l, 1}, type};
  }
  TensorSpec per_row() const {
    return {{s_.sequences, s_.heads, s_.length, 1}, {s_.heads * s_.length, s_.length, 1, 1}};
  }

  int scaled_scores() {
    const int scores = graph_.matmul(t_.q, t_.k, scores_spec(CUDNN_DATA_FLOAT), {t_.lengths, t_.lengths, kNone});
    return graph_.pointwise(CUDNN_POINTWISE_MUL, scores, graph_.scalar(s_.scale));
  }
  int masked(int scores) { return causal(padded(scores)); }
  int compare(cudnnPointwiseMode_t mode, int x, int y) {
    return graph_.pointwise(mode, x, y, kNone, {kNone, CUDNN_DATA_BOOLEAN});
  }
  int keep_where(int mask, int scores) {
    return graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores,
                            graph_.scalar(-std::numeric_limits<float>::infinity()), mask);
  }
  /// Rows and columns of a sequence alone.
  int padded(int scores) {
    const int row = graph_.index(scores, 2), col = graph_.index(scores, 3);
    const int inside = compare(CUDNN_POINTWISE_LOGICAL_AND, compare(CUDNN_POINTWISE_CMP_LT, row, t_.lengths),
                               compare(CUDNN_POINTWISE_CMP_LT, col, t_.lengths));
    return keep_where(inside, scores);
  }
  int causal(int scores) {
    return keep_where(compare(CUDNN_POINTWISE_CMP_GE, graph_.index(scores, 2), graph_.index(scores, 3)), scores);
  }

  /// out = a b [sequences, kv_heads, length, head_dim]: summed over the query heads that share theirs.
  void sum_of_heads(int a, int b, int out, int& heads) {
    const Graph::Lengths lengths{t_.lengths, kNone, t_.lengths};
    if (s_.heads == s_.kv_heads) return graph_.matmul_to(a, b, out, lengths);
    // The starts are those of `out`: that a row is longer by heads / kv_heads is implied.
    heads = graph_.tensor(rows(s_.heads, t_.kv_starts));
    graph_.matmul_to(a, b, heads, lengths);
    graph_.reduce_to(CUDNN_REDUCE_TENSOR_ADD, heads, out);
  }

  AttentionShape s_;
  Graph graph_;
  AttentionTensors t_;
};

}  // namespace

AttentionGraph forward_graph(const AttentionShape& shape) { return Builder(shape).forward(); }
AttentionGraph backward_graph(const AttentionShape& shape) { return Builder(shape).backward(); }

}  // namespace motley::kernels::cuda::cudnn
