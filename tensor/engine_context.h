// How an engine runs the transformer: products of quantized weights, attention over the paged cache. Used by decoding
// and scoring alike, so that both give the same bits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tensor/engine.h"
#include "tensor/kv_cache.h"

namespace motley {

/// K and V of the rows are written to the cache, rounded to its format, before any row attends.
class EngineContext final : public ForwardContext {
 public:
  EngineContext(const SamplerWeights& weights, KvCache& cache, const RopeTable& table);
  /// One page table and one position per row of the next pass.
  void set_rows(std::span<const int32_t* const> page_tables, std::span<const int32_t> positions);
  Tensor project(const Tensor& x, int64_t layer, Projection projection) override;
  Tensor parameter(const std::string& name) override { return weights_.parameter(name); }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) override;
  const RopeTable& rope_table() override { return table_; }

 private:
  const SamplerWeights& weights_;
  KvCache& cache_;
  const RopeTable& table_;
  std::span<const int32_t* const> page_tables_;
  std::span<const int32_t> positions_;
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

/// Runs the tokens that the cache lacks, at most `max_rows` at a time; `take` gets the hidden states of each piece and
/// the rows that they belong to. `cached` is left as it is: the caller moves it on when it has used the result.
void forward_missing(EngineContext& context, const TransformerConfig& config, KvCache& cache,
                     std::span<CachedSequence* const> sequences, int64_t max_rows,
                     const std::function<void(const Tensor& hidden, std::span<const CachedRow> rows)>& take);

/// Throws std::invalid_argument, beginning with `whose`, for a token that the embedding has no row for.
void check_tokens(std::span<const int32_t> tokens, int64_t vocabulary, const std::string& whose);

}  // namespace motley
