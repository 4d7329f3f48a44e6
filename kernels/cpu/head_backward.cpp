// The head's backward pass, block of ids by block of ids: the slopes dL/dz of a chunk of rows over one block stay in
// the second cache for the two products that read them, and are held nowhere else. Every element of d_hidden is one
// chain over ids ascending, every element of d_weight one over rows ascending, so the blocks change no bit.
#include <algorithm>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/head_inner.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/scratch.h"
#include "kernels/head.h"
#include "kernels/matmul.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

constexpr int64_t kChunkRows = 1024;                  // d_weight is read and written once for each such chunk
constexpr int64_t kBlockElements = int64_t{1} << 18;  // of slopes: half of a second cache of 2 MiB
constexpr int64_t kIds = kTilePanels * kPanel;        // blocks are whole tiles of both products
constexpr int64_t kRowsAhead = 2;                     // that kept logits are asked for
constexpr int64_t kPadding = 16;                      // keeps rows of slopes from sharing cache sets

/// What the cotangents of a row say about every member of its support: a p - c p (log p + H).
template <class C>
struct RowFactors {
  C a, c;
  bool any;  // of them is not 0
};

template <class T>
class HeadBackward {
  using C = Compute<T>;

 public:
  explicit HeadBackward(const HeadBackwardArgs<T>& args) : args_(args), forward_(args.forward) {}

  void run() {
    const int64_t kept = std::min(forward_.kept_rows, forward_.rows);
    for (int64_t first = 0, rows = 0; first < forward_.rows; first += rows) {
      rows = std::min(kChunkRows, (first < kept ? kept : forward_.rows) - first);
      chunk(first, rows, first < kept);
    }
  }

 private:
  /// A block of ids, and the slopes of a chunk over it.
  struct Block {
    int64_t begin, end;
    C* slopes;       // [rows][stride]
    int64_t stride;  // elements from one row to the next
    ConstMatrix matrix(int64_t rows) const { return {slopes, dtype_of<C>(), rows, end - begin, stride, 1}; }
  };

  void chunk(int64_t first, int64_t rows, bool kept) {
    const int64_t width = forward_.width, vocabulary = forward_.vocabulary;
    const int64_t most = (vocabulary + kIds - 1) / kIds * kIds;
    const int64_t step = std::min(std::max(kIds, kBlockElements / rows / kIds * kIds), most);
    C* slopes = scratch<struct HeadSlopes, C>(rows * (step + kPadding));
    C* buffer = std::is_same_v<T, C> ? nullptr : scratch<struct HeadHidden, C>(rows * width);
    C* d_hidden = compute_into(args_.d_hidden + first * width, buffer);
    if (vocabulary == 0) std::fill_n(d_hidden, rows * width, C{0});
    RowFactors<C>* factors = scratch<struct HeadFactors, RowFactors<C>>(rows);
    for (int64_t r = 0; r < rows; ++r) factors[r] = factors_of(first + r);
    for (int64_t begin = 0; begin < vocabulary; begin += step) {
      const Block block{begin, std::min(vocabulary, begin + step), slopes, step + kPadding};
      if (!kept) compute_logits(block, first, rows);
      parallel_for(rows, 1 + kPieceElements / (4 * step), [&](int64_t from, int64_t to) {
        for (int64_t r = from; r < to; ++r) {
          C* row = slopes + r * block.stride;
          if (!kept && forward_.temperature != 1.0)
            row_divide(row, block.end - begin, static_cast<C>(forward_.temperature));
          const C* z = kept ? kept_logits(first + r, block) : row;
          if (kept) ask_for(kept_logits(first + std::min(r + kRowsAhead, rows - 1), block), block);
          differentiate(first + r, factors[r], block, z, row);
        }
      });
      multiply(block, first, rows, d_hidden);
    }
    store_from(args_.d_hidden + first * width, d_hidden, rows * width);
  }

  const C* kept_logits(int64_t r, const Block& block) const {
    return forward_.kept_logits + r * forward_.vocabulary + block.begin;
  }
  /// A row's part of a block is too short for the hardware to see that it will be read.
  static void ask_for(const C* values, const Block& block) {
    constexpr int64_t kLine = 64 / sizeof(C);
    for (int64_t i = 0; i < block.end - block.begin; i += kLine) __builtin_prefetch(values + i);
  }

  ConstMatrix weight(const Block& block) const {
    return row_major(static_cast<const void*>(forward_.weight + block.begin * forward_.width), dtype_of<T>(),
                     block.end - block.begin, forward_.width);
  }
  ConstMatrix hidden(int64_t first, int64_t rows) const {
    return row_major(static_cast<const void*>(forward_.hidden + first * forward_.width), dtype_of<T>(), rows,
                     forward_.width);
  }

  /// z times temperature, where no logits were kept.
  void compute_logits(const Block& block, int64_t first, int64_t rows) const {
    MatmulArgs product;
    product.a = hidden(first, rows);
    product.b = weight(block);
    product.c = {block.slopes, dtype_of<C>(), rows, block.end - block.begin, block.stride, 1};
    matmul(product);
  }
  void multiply(const Block& block, int64_t first, int64_t rows, C* d_hidden) const {
    MatmulArgs product;
    product.a = block.matrix(rows);
    product.b = transposed(weight(block));
    product.c = row_major(static_cast<void*>(d_hidden), dtype_of<C>(), rows, forward_.width);
    product.accumulate = block.begin > 0;
    matmul(product);
    product.a = transposed(product.a);
    product.b = transposed(hidden(first, rows));
    product.c = row_major(static_cast<void*>(args_.d_weight + block.begin * forward_.width), dtype_of<C>(),
                          block.end - block.begin, forward_.width);
    product.accumulate = first > 0 || !args_.sets_weight;
    matmul(product);
  }

  /// Entries [first, last) of the selected ids are row r's.
  std::pair<int64_t, int64_t> selected(int64_t r) const {
    if (forward_.selected.offsets == nullptr) return {0, 0};
    return {forward_.selected.offsets[r], forward_.selected.offsets[r + 1]};
  }
  RowFactors<C> factors_of(int64_t r) const {
    RowFactors<C> found{C{0}, args_.d_entropy == nullptr ? C{0} : args_.d_entropy[r], false};
    found.any = found.c != C{0};
    for (auto [k, end] = selected(r); k < end; ++k) {
      found.a -= args_.d_log_p[k];
      found.any = found.any || args_.d_log_p[k] != C{0};
    }
    return found;
  }
  /// slopes = dL/dlogits of row r over the block, the factor 1 / temperature included, from its z. A row without
  /// cotangents gets zeros.
  void differentiate(int64_t r, const RowFactors<C>& factors, const Block& block, const C* z, C* slopes) const {
    const int64_t count = block.end - block.begin;
    if (!factors.any) return static_cast<void>(std::fill_n(slopes, count, C{0}));
    const C lse = forward_.lse[r], entropy = factors.c == C{0} ? C{0} : forward_.entropy[r];
    if (forward_.candidates.offsets == nullptr)
      row_cotangents(z, slopes, count, lse, entropy, factors.a, factors.c);
    else
      differentiate_candidates(r, factors, block, lse, entropy, z, slopes);
    for (auto [k, end] = selected(r); k < end; ++k) {
      const int64_t id = forward_.selected.ids[k];
      if (id >= block.begin && id < block.end) slopes[id - block.begin] += args_.d_log_p[k];
    }
    if (forward_.temperature != 1.0) row_divide(slopes, count, static_cast<C>(forward_.temperature));
  }
  void differentiate_candidates(int64_t r, const RowFactors<C>& factors, const Block& block, C lse, C entropy,
                                const C* z, C* slopes) const {
    const int32_t *ids = forward_.candidates.ids, *end = ids + forward_.candidates.offsets[r + 1];
    ids = std::lower_bound(ids + forward_.candidates.offsets[r], end, block.begin);
    const int64_t count = std::lower_bound(ids, end, block.end) - ids;
    C* gathered = scratch<struct HeadCandidates, C>(count);
    for (int64_t i = 0; i < count; ++i) gathered[i] = z[ids[i] - block.begin];
    row_cotangents(gathered, gathered, count, lse, entropy, factors.a, factors.c);
    std::fill_n(slopes, block.end - block.begin, C{0});
    for (int64_t i = 0; i < count; ++i) slopes[ids[i] - block.begin] = gathered[i];
  }

  const HeadBackwardArgs<T>& args_;
  const HeadArgs<T>& forward_;
};

}  // namespace

template <class T>
void head_backward(const HeadBackwardArgs<T>& args) {
  HeadBackward<T>(args).run();
}

#define MOTLEY_INSTANTIATE(T) template void head_backward<T>(const HeadBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
