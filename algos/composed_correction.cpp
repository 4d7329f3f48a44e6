#include "algos/composed_correction.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace motley::algos {
namespace {

std::vector<DrawnToken> drawn_tokens(const CorrectionBatch& batch) {
  const double steps = static_cast<double>(batch.steps_since_old) / static_cast<double>(batch.steps_per_batch);
  std::vector<DrawnToken> tokens(batch.tokens());
  for (size_t t = 0; t < tokens.size(); ++t) {
    const auto entry = static_cast<size_t>(batch.sampled[t]);
    const double lag = batch.staleness.empty() ? 0.0 : static_cast<double>(batch.staleness[t]);
    tokens[t] = {.log_p = batch.log_p[entry],
                 .log_q = batch.log_q[entry],
                 .log_p_old = batch.log_p_old.empty() ? 0.0 : batch.log_p_old[t],
                 .advantage = batch.advantage[t],
                 .start_lag = lag,
                 .lag = lag + steps};
  }
  return tokens;
}

}  // namespace

/// The weights of a batch while they are found.
struct ComposedWeights {
  std::vector<DrawnToken> drawn;  // [tokens]
  std::vector<double> weight;     // [tokens] 0 until weighed
  std::vector<uint8_t> dropped;   // [tokens] 1: left out, centering and all
  std::vector<size_t> for_batch;  // tokens that a rule of batch scope is to see together
  bool reads_sampler, reads_old;  // what must not be NaN
  SampleNumbers* numbers;

  bool unusable(size_t t) const {
    const DrawnToken& token = drawn[t];
    return (reads_sampler && std::isnan(token.log_ratio())) || (reads_old && std::isnan(token.log_p - token.log_p_old));
  }
};

namespace {

void weigh(const RatioRule& rule, const std::vector<size_t>& tokens, ComposedWeights& all) {
  std::vector<DrawnToken> drawn;
  for (const size_t t : tokens) drawn.push_back(all.drawn[t]);
  std::vector<double> weights(tokens.size(), 0.0);
  rule.weights(drawn, weights, *all.numbers);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!std::isnan(weights[i])) all.weight[tokens[i]] = weights[i];
  }
}

}  // namespace

Scope ComposedCorrection::scope() const {
  if (pieces_.rule->scope() == Scope::token && !pieces_.filters.empty()) return Scope::sequence;
  return pieces_.rule->scope();
}

const PieceSet& ComposedCorrection::pieces_of(const CorrectionBatch& batch, size_t token) const {
  if (of_group_.empty() || batch.sampler_group.empty()) return pieces_;
  const auto own = of_group_.find(batch.group_names[static_cast<size_t>(batch.sampler_group[token])]);
  return own == of_group_.end() ? pieces_ : own->second;
}

/// NaN stays where it is: tokens without an advantage that hold one are not there at all, and one that is trained on
/// takes its sequence with it wherever a sequence is judged as a whole.
void ComposedCorrection::weigh_sequence(const CorrectionBatch& batch, size_t first, size_t last,
                                        ComposedWeights& all) const {
  const PieceSet& pieces = pieces_of(batch, first);
  std::vector<size_t> usable;
  std::vector<DrawnToken> drawn;
  bool broken = false;
  for (size_t t = first; t < last; ++t) {
    if (all.unusable(t)) {
      all.dropped[t] = 1;
      broken = broken || all.drawn[t].advantage != 0.0;
      continue;
    }
    usable.push_back(t);
    drawn.push_back(all.drawn[t]);
  }
  bool keep = !usable.empty() && !(broken && scope() != Scope::token);
  for (const auto& filter : pieces.filters) keep = keep && filter->keeps(drawn);
  if (!keep) {
    std::fill(all.dropped.begin() + static_cast<int64_t>(first), all.dropped.begin() + static_cast<int64_t>(last), 1);
  } else if (pieces.rule->scope() == Scope::batch) {
    all.for_batch.insert(all.for_batch.end(), usable.begin(), usable.end());
  } else {
    weigh(*pieces.rule, usable, all);
  }
}

void ComposedCorrection::coefficients(const CorrectionBatch& batch, Coefficients& out) const {
  if (needs_old_log_probs() && batch.log_p_old.size() != batch.tokens()) {
    throw std::invalid_argument("this correction needs the trainer's log-probabilities at the start of the batch");
  }
  ComposedWeights all{.drawn = drawn_tokens(batch),
                      .weight = std::vector<double>(batch.tokens(), 0.0),
                      .dropped = std::vector<uint8_t>(batch.tokens(), 0),
                      .for_batch = {},
                      .reads_sampler = uses_sampler(),
                      .reads_old = needs_old_log_probs(),
                      .numbers = &out.samples};
  for (size_t first = 0, last = 0; first < batch.tokens(); first = last) {
    while (last < batch.tokens() && batch.sequence[last] == batch.sequence[first]) ++last;
    weigh_sequence(batch, first, last, all);
  }
  if (!all.for_batch.empty()) weigh(*pieces_.rule, all.for_batch, all);

  for (size_t t = 0; t < batch.tokens(); ++t) {
    out.masked[t] = all.weight[t] == 0.0;
    if (batch.advantage[t] == 0.0 || all.dropped[t]) continue;
    const PieceSet& pieces = pieces_of(batch, t);
    if (pieces.centering) {
      pieces.centering->add(batch, t, static_cast<const TokenRule&>(*pieces.rule), out.b);
    }
    if (all.weight[t] != 0.0) out.b[static_cast<size_t>(batch.sampled[t])] -= batch.advantage[t] * all.weight[t];
  }
}

}  // namespace motley::algos
