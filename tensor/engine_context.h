// How an engine runs the transformer: products of quantized weights, attention over the paged cache. Used by decoding
// and scoring alike, so that both give the same bits.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tensor/engine.h"
#include "tensor/kv_cache.h"
#include "tensor/pass_lists.h"

namespace motley {

/// K and V of the rows are written to the cache, rounded to its format, before any row attends.
class EngineContext final : public ForwardContext {
 public:
  EngineContext(const SamplerWeights& weights, KvCache& cache, const RopeTable& table, PassLists& lists);
  ~EngineContext() override;
  EngineContext(const EngineContext&) = delete;
  EngineContext& operator=(const EngineContext&) = delete;
  /// The rows of the next pass: to be filled, and then sent where the kernels read them.
  PassRows& rows() { return lists_.rows(); }
  void send_rows();
  /// The same when the lists were sent by somebody else.
  void begin_pass();
  Tensor project(const Tensor& x, int64_t layer, Projection projection) override;
  Tensor project_gated(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate) override;
  Tensor project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual) override;
  Tensor parameter(const std::string& name) override { return weights_.parameter(name); }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) override;
  const RopeTable& rope_table() override { return table_; }

  /// Memory of row buffers that this thread keeps for its next context. Those of a large pass (a score, a long prompt)
  /// go with it.
  static int64_t kept_bytes();
  static constexpr int64_t kMostKeptBytes = int64_t{4} << 20;

 private:
  Tensor product(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate, const Tensor& residual);

  const SamplerWeights& weights_;
  KvCache& cache_;
  const RopeTable& table_;
  PassLists& lists_;
  std::optional<PassLists::Found> found_;
  // The last input of a projection, held so that its memory is no other tensor's, and its rows as products read them.
  Tensor input_;
  kernels::QuantizedRows rows_;
};

/// A sequence and how much of it the cache holds.
struct CachedSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages;
  int64_t cached = 0;  // the first `cached` tokens have their K and V in `pages`
};
struct CachedRow {
  size_t sequence;  // index into the sequences of the pass
  int32_t position;
};

/// Fills `pass` for at most `max_rows` rows at a time and calls body(first row, end row) for each piece.
/// `sequence_of(row.sequence)` is a CachedSequence.
template <class SequenceOf, class Body>
void for_each_pass(std::span<const CachedRow> rows, int64_t max_rows, SequenceOf sequence_of, PassRows& pass,
                   Body body) {
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t begin = 0; begin < count; begin += max_rows) {
    const int64_t end = std::min(count, begin + max_rows);
    pass.ids.clear();
    pass.positions.clear();
    pass.page_tables.clear();
    for (int64_t r = begin; r < end; ++r) {
      const CachedRow& row = rows[static_cast<size_t>(r)];
      const CachedSequence& sequence = sequence_of(row.sequence);
      pass.ids.push_back(sequence.tokens[static_cast<size_t>(row.position)]);
      pass.positions.push_back(row.position);
      pass.page_tables.push_back(sequence.pages.data());
    }
    body(begin, end);
  }
}

/// Runs the tokens that the cache lacks, at most `max_rows` at a time; `take` gets the hidden states of each piece and
/// the rows that they belong to. `cached` is left as it is: the caller moves it on when it has used the result.
void forward_missing(EngineContext& context, const TransformerConfig& config, KvCache& cache,
                     std::span<CachedSequence* const> sequences, int64_t max_rows,
                     const std::function<void(const Tensor& hidden, std::span<const CachedRow> rows)>& take);

/// Throws std::invalid_argument, beginning with `whose`, for a token that the embedding has no row for.
void check_tokens(std::span<const int32_t> tokens, int64_t vocabulary, const std::string& whose);

}  // namespace motley
