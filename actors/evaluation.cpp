#include "actors/evaluation.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "actors/evaluated_episodes.h"

namespace motley::actors {
namespace {

/// The problems of all sets, each once, and the places of each set's among them.
struct Problems {
  std::vector<envs::TaskMix::Pick> all;
  std::vector<std::vector<size_t>> of_set;
};

Problems problems_of(const envs::TaskMix& tasks, const EvaluationRequest& request) {
  Problems problems;
  std::map<std::pair<size_t, uint64_t>, size_t> places;  // by entry and index
  for (const std::string& set : request.sets) {
    std::vector<size_t>& places_of_set = problems.of_set.emplace_back();
    for (envs::TaskMix::Pick& pick : tasks.held_out_set(set, static_cast<uint64_t>(request.prompts))) {
      const auto [place, fresh] = places.emplace(std::pair(pick.entry, pick.index), problems.all.size());
      if (fresh) problems.all.push_back(std::move(pick));
      places_of_set.push_back(place->second);
    }
  }
  return problems;
}

EvaluationResult::PassAt mean_of(const std::vector<double>& values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EvaluationResult::PassAt result{kNone, kNone, static_cast<int64_t>(values.size())};
  if (values.empty()) return result;
  const auto n = static_cast<double>(values.size());
  result.value = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.value) * (value - result.value);
  result.standard_error = std::sqrt(squares / (n - 1.0) / n);
  return result;
}

/// Adds up the episodes of one set.
class Summary {
 public:
  explicit Summary(const EvaluationRequest& request) : request_(request) {}

  void add_problem(std::span<const EvaluatedEpisode> samples) {
    int64_t valid = 0, right = 0;
    for (const EvaluatedEpisode& sample : samples) {
      if (!add(sample)) continue;
      ++valid;
      if (sample.outcome.reward.value >= 1.0) ++right;
    }
    ++result_.prompts;
    result_.samples += valid;
    for (const int64_t k : request_.k)
      if (valid >= k) pass_at_[k].push_back(pass_at_k(valid, right, k));
  }

  EvaluationResult result(const std::string& set) && {
    result_.set = set;
    for (const int64_t k : request_.k) result_.pass_at[k] = mean_of(pass_at_[k]);
    if (result_.samples > 0) {
      const auto samples = static_cast<double>(result_.samples);
      result_.mean_reward /= samples;
      result_.format_error /= samples;
      result_.format_errors /= samples;
      result_.turns /= samples;
      result_.tokens /= samples;
    }
    return std::move(result_);
  }

 private:
  /// False if it failed: counted, but never as wrong.
  bool add(const EvaluatedEpisode& episode) {
    const envs::InteractionOutcome& outcome = episode.outcome;
    if (!outcome.failure.empty()) {
      ++result_.failed;
      ++result_.ends["failed"];
      if (result_.first_failure.empty()) result_.first_failure = outcome.failure;
      return false;
    }
    ++result_.ends[outcome.end];
    result_.mean_reward += outcome.reward.value;
    result_.format_error += outcome.reward.format_error || outcome.format_errors > 0 ? 1.0 : 0.0;
    result_.format_errors += static_cast<double>(outcome.format_errors);
    result_.turns += static_cast<double>(episode.replies);
    result_.tokens += static_cast<double>(episode.tokens);
    return true;
  }

  const EvaluationRequest& request_;
  EvaluationResult result_;
  std::map<int64_t, std::vector<double>> pass_at_;  // of every problem that counts
};

}  // namespace

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1.0;
  double all_wrong = 1.0;
  for (int64_t i = n - c + 1; i <= n; ++i) all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(i);
  return 1.0 - all_wrong;
}

std::vector<EvaluationResult> evaluate(std::shared_ptr<const SamplerWeights> weights, const envs::TaskMix& tasks,
                                       const envs::Tokenizer& tokenizer, const EvaluationRequest& request,
                                       int64_t slots, const std::function<bool()>& stop) {
  const Problems problems = problems_of(tasks, request);
  const std::vector<EvaluatedEpisode> episodes =
      play_episodes(std::move(weights), tasks, problems.all, tokenizer, request, slots, stop);
  std::vector<EvaluationResult> results;
  if (episodes.empty()) return results;
  const auto samples = static_cast<size_t>(request.samples);
  for (size_t set = 0; set < request.sets.size(); ++set) {
    Summary summary(request);
    for (const size_t place : problems.of_set[set])
      summary.add_problem(std::span(episodes).subspan(place * samples, samples));
    results.push_back(std::move(summary).result(request.sets[set]));
  }
  return results;
}

}  // namespace motley::actors
