#include "algos/trajectory.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::algos {
namespace {

std::string at(const char* what, size_t position) {
  return std::string(what) + " at position " + std::to_string(position);
}

/// Under truncated sampling (a list without a tail) the drawn token is one of the list.
bool drawn_token_listed(const TokenRecords& records, size_t t) {
  const auto begin = records.ids.begin() + records.offsets[t], end = records.ids.begin() + records.offsets[t + 1];
  const bool support = begin != end && records.log_tail[t] == -std::numeric_limits<float>::infinity();
  return !support || std::binary_search(begin, end, records.tokens[t]);
}

/// Empty, or why the turns are not those of an episode of so many loss tokens and this reward.
std::string wrong_turns(const std::vector<Turn>& turns, size_t loss_tokens, double reward) {
  if (turns.empty()) return "";
  uint64_t tokens = 0;
  double sum = 0.0, size = 0.0;
  for (const Turn& turn : turns) {
    if (!std::isfinite(turn.reward)) return "the reward of a turn is not a finite number";
    tokens += turn.tokens;
    sum += turn.reward;
    size += std::abs(turn.reward);
  }
  if (tokens != loss_tokens) return "the turns' tokens do not add up to the loss tokens";
  // Shares of one number: each, and their sum, may be rounded.
  return std::abs(sum - reward) <= 1e-9 * size ? "" : "the turns' rewards do not add up to the episode's";
}

}  // namespace

uint64_t Trajectory::oldest_version() const {
  return records.versions.empty() ? 0 : *std::min_element(records.versions.begin(), records.versions.end());
}

std::string Trajectory::inconsistency(int64_t vocabulary) const {
  if (tokens.size() != loss_mask.size()) return "tokens and loss_mask differ in length";
  if (!(temperature > 0.0) || !std::isfinite(temperature)) return "temperature is not a positive number";
  if (!std::isfinite(reward)) return "reward is not a finite number";
  if (!records.consistent(vocabulary)) return "records disagree with each other";
  if (!loss_mask.empty() && loss_mask[0]) return "the first token has no prefix and cannot be a loss token";
  size_t t = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) return at("token outside the vocabulary", i);
    if (loss_mask[i] > 1) return at("loss_mask is neither 0 nor 1", i);
    if (!loss_mask[i]) continue;
    if (t == records.size()) return "fewer records than loss tokens";
    if (records.tokens[t] != tokens[i]) return at("record of another token", i);
    if (!drawn_token_listed(records, t)) return at("drawn token outside its candidate set", i);
    ++t;
  }
  return t == records.size() ? wrong_turns(turns, t, reward) : "more records than loss tokens";
}

}  // namespace motley::algos
