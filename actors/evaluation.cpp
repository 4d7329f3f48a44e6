#include "actors/evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/policy/episode.h"
#include "envs/episode.h"
#include "kernels/parallel.h"

namespace motley::actors {
namespace {

struct Episode {
  std::vector<int32_t> context;  // all that was read and drawn before the present turn
  std::vector<int32_t> drawn;    // in the present turn
  std::vector<envs::Reply> replies;
  std::string error;  // not empty: it failed
};

/// Decodes every (problem, sample), turn by turn.
class Decoding {
 public:
  Decoding(const std::vector<envs::TaskMix::Pick>& problems, Engine& engine, int64_t max_positions,
           const envs::Tokenizer& tokenizer, const EvaluationRequest& request)
      : problems_(problems), engine_(engine), max_positions_(max_positions), tokenizer_(tokenizer), request_(request) {}
  /// That of sample s of problem p is entry p * samples + s. Empty when stopped.
  std::vector<Episode> run(const std::function<bool()>& stop);

 private:
  const envs::TaskMix::Pick& problem_of(size_t i) const { return problems_[i / static_cast<size_t>(request_.samples)]; }
  /// Appends the question and asks for the reply.
  void ask(size_t i, const envs::Problem& question);
  void collect(const StepOutput& output);

  const std::vector<envs::TaskMix::Pick>& problems_;
  Engine& engine_;
  int64_t max_positions_;
  const envs::Tokenizer& tokenizer_;
  const EvaluationRequest& request_;
  std::vector<Episode> episodes_;
};

void Decoding::ask(size_t i, const envs::Problem& question) {
  Episode& episode = episodes_[i];
  for (const int32_t token : tokenizer_.encode(question.prompt)) episode.context.push_back(token);
  GenerateRequest generate;
  generate.id = i;
  generate.tokens = episode.context;
  generate.max_new_tokens = request_.max_tokens;
  generate.stop_tokens = {tokenizer_.eos()};
  generate.rule.temperature = request_.temperature;
  generate.rule.top_p = request_.top_p;
  generate.key = {.seed = request_.seed,
                  .purpose = kernels::Purpose::eval,
                  .session = random_session(problem_of(i), i % static_cast<size_t>(request_.samples)),
                  .attempt = 0};
  generate.vocabulary = tokenizer_.size();
  try {
    engine_.submit(std::move(generate));
  } catch (const std::invalid_argument& error) {  // a prompt that the model has no room for
    episode.error = error.what();
  }
}

void Decoding::collect(const StepOutput& output) {
  Episode& episode = episodes_[output.id];
  episode.drawn.insert(episode.drawn.end(), output.records.tokens.begin(), output.records.tokens.end());
  if (output.finish == FinishReason::none) return;
  if (output.finish == FinishReason::failed) {
    episode.error = output.error.empty() ? "the engine gave no reason" : output.error;
    return;
  }
  const bool ended = output.finish == FinishReason::stop;
  const std::vector<int32_t> drawn = std::exchange(episode.drawn, {});
  episode.context.insert(episode.context.end(), drawn.begin(), drawn.end());
  episode.replies.push_back({tokenizer_.decode(std::span(drawn).first(drawn.size() - (ended ? 1 : 0))), ended});
  const envs::Problem* question = envs::next_question(problem_of(output.id).problem, episode.replies);
  if (!question) return;
  const size_t read = tokenizer_.encode(question->prompt).size();
  if (room_for_turn(episode.context.size(), read, max_positions_)) ask(output.id, *question);
}

std::vector<Episode> Decoding::run(const std::function<bool()>& stop) {
  episodes_.resize(problems_.size() * static_cast<size_t>(request_.samples));
  for (size_t i = 0; i < episodes_.size(); ++i) ask(i, problem_of(i).problem);
  kernels::ComputeClient client(kernels::ComputeSide::sampler);
  const auto step = [&] {
    const kernels::ComputeLease lease(client);
    return engine_.step();
  };
  while (!engine_.idle()) {
    if (stop && stop()) return {};
    for (const StepOutput& output : step()) collect(output);
  }
  return std::move(episodes_);
}

/// The reward of a finished episode, or nothing if either failed.
std::optional<envs::Reward> reward_of(const envs::TaskMix& tasks, const envs::TaskMix::Pick& problem,
                                      const Episode& episode) {
  if (!episode.error.empty()) return std::nullopt;
  try {
    envs::Reward reward = envs::episode_reward(*tasks.entries()[problem.entry].task, problem.problem, episode.replies);
    if (std::isfinite(reward.value)) return reward;
  } catch (const std::exception&) {
    return std::nullopt;  // counted as failed, never as wrong
  }
  return std::nullopt;
}

}  // namespace

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1.0;
  double all_wrong = 1.0;
  for (int64_t i = n - c + 1; i <= n; ++i) all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(i);
  return 1.0 - all_wrong;
}

EvaluationResult evaluate(std::shared_ptr<const SamplerWeights> weights, const envs::TaskMix& tasks,
                          const envs::Tokenizer& tokenizer, const EvaluationRequest& request, int64_t slots,
                          const std::function<bool()>& stop) {
  std::vector<envs::TaskMix::Pick> problems;
  const uint64_t count = tasks.held_out_size(static_cast<uint64_t>(request.prompts));
  for (uint64_t n = 0; n < count; ++n) problems.push_back(tasks.held_out(n));
  EngineLimits limits;
  limits.max_sequences = std::min(slots, std::max<int64_t>(1, static_cast<int64_t>(count) * request.samples));
  const int64_t max_positions = weights->config().max_positions;
  Engine engine(std::move(weights), limits);
  const std::vector<Episode> episodes = Decoding(problems, engine, max_positions, tokenizer, request).run(stop);

  EvaluationResult result;
  if (episodes.empty()) return result;
  std::map<int64_t, int64_t> counted;  // problems with at least k samples, by k
  double rewards = 0, format_errors = 0;
  for (size_t p = 0; p < problems.size(); ++p) {
    int64_t valid = 0, right = 0;
    for (size_t s = 0; s < static_cast<size_t>(request.samples); ++s) {
      const Episode& episode = episodes[p * static_cast<size_t>(request.samples) + s];
      const auto reward = reward_of(tasks, problems[p], episode);
      if (!reward) {
        if (result.first_failure.empty()) result.first_failure = episode.error.empty() ? "no reward" : episode.error;
        continue;
      }
      ++valid;
      if (reward->value >= 1.0) ++right;
      rewards += reward->value;
      format_errors += reward->format_error ? 1.0 : 0.0;
    }
    result.samples += valid;
    for (const int64_t k : request.k) {
      if (valid < k) continue;
      result.pass_at[k] += pass_at_k(valid, right, k);
      ++counted[k];
    }
  }
  result.prompts = static_cast<int64_t>(problems.size());
  result.failed = static_cast<int64_t>(episodes.size()) - result.samples;
  for (auto& [k, sum] : result.pass_at) sum /= static_cast<double>(counted[k]);
  if (result.samples > 0) result.mean_reward = rewards / static_cast<double>(result.samples);
  if (result.samples > 0) result.format_error = format_errors / static_cast<double>(result.samples);
  return result;
}

}  // namespace motley::actors
