#include "tensor/engine_score.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tensor/ops_common.h"

namespace motley {
namespace {

/// log p of the token after each row, of one piece of a scoring pass.
void score_rows(const Tensor& hidden, const SamplerWeights& weights, double temperature,
                std::span<const CachedRow> rows, std::span<CachedSequence* const> sequences,
                std::span<std::vector<float>* const> results) {
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> ids;
  for (const CachedRow& row : rows) {
    const std::vector<int32_t>& tokens = sequences[row.sequence]->tokens;
    const size_t next = static_cast<size_t>(row.position) + 1;
    if (next < tokens.size()) ids.push_back(tokens[next]);
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  if (ids.empty()) return;
  const Device& device = hidden.device();
  const ops::DeviceList<int64_t> offset_list(device, offsets);
  const ops::DeviceList<int32_t> id_list(device, ids);
  const Tensor log_p = Tensor::empty({id_list.size()}, DType::f32, device);
  const auto run = [&](auto element) {
    using T = decltype(element);
    kernels::HeadArgs<T> args{};
    args.hidden = hidden.pointer<T>();
    args.weight = weights.head_weight().pointer<T>();
    args.rows = static_cast<int64_t>(rows.size());
    args.width = weights.config().width;
    args.vocabulary = weights.config().vocabulary;
    args.temperature = temperature;
    args.selected = {offset_list.data(), id_list.data()};
    args.log_p = log_p.pointer<float>();
    MOTLEY_RUN(device, head<T>, args);
  };
  switch (hidden.dtype()) {
    case DType::bf16:
      run(kernels::bf16{});
      break;
    case DType::f16:
      run(kernels::fp16{});
      break;
    default:
      run(float{});
      break;
  }
  const Tensor here = log_p.to(Device{});
  const std::span<const float> values = here.span<float>();
  for (size_t r = 0; r < rows.size(); ++r) {
    if (offsets[r] == offsets[r + 1]) continue;
    (*results[rows[r].sequence])[static_cast<size_t>(rows[r].position)] = values[static_cast<size_t>(offsets[r])];
  }
}

}  // namespace

std::vector<std::vector<float>> score_sequences(const SamplerWeights& weights, const RopeTable& table,
                                                const EngineLimits& limits,
                                                const std::vector<std::vector<int32_t>>& sequences,
                                                double temperature) {
  const TransformerConfig& config = weights.config();
  if (!(temperature > 0.0) || std::isinf(temperature)) {
    throw std::invalid_argument("score: temperature must be a finite number above 0");
  }
  std::vector<std::vector<float>> results(sequences.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    const std::string whose = "sequence " + std::to_string(s);
    check_tokens(sequences[s], config.vocabulary, whose);
    if (static_cast<int64_t>(sequences[s].size()) > config.max_positions) {
      throw std::invalid_argument(whose + ": longer than " + std::to_string(config.max_positions) + " positions");
    }
    results[s].resize(std::max<size_t>(sequences[s].size(), 1) - 1);
  }
  KvCache cache(config, weights.profile(), limits.page_size, static_cast<int64_t>(sequences.size()), weights.device());
  PassLists lists(weights.device());
  EngineContext context(weights, cache, table, lists);
  for (size_t begin = 0; begin < sequences.size();) {
    // As many whole sequences at once as fit a pass: the cache holds no more than those.
    std::vector<CachedSequence> group;
    std::vector<std::vector<float>*> group_results;
    size_t rows = 0;
    do {
      rows += sequences[begin].size();
      group.push_back({sequences[begin], {}, 0});
      group_results.push_back(&results[begin]);
      ++begin;
    } while (begin < sequences.size() && rows + sequences[begin].size() <= static_cast<size_t>(limits.max_batch_rows));
    std::vector<CachedSequence*> pointers;
    for (CachedSequence& sequence : group) pointers.push_back(&sequence);
    forward_missing(context, config, cache, pointers, limits.max_batch_rows,
                    [&](const Tensor& hidden, std::span<const CachedRow> piece) {
                      score_rows(hidden, weights, temperature, piece, pointers, group_results);
                    });
    for (CachedSequence& sequence : group) cache.release(sequence.pages);
  }
  return results;
}

}  // namespace motley
