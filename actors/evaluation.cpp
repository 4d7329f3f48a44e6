#include "actors/evaluation.h"

#include <algorithm>
#include <cmath>

#include "actors/policy/episode.h"
#include "kernels/parallel.h"

namespace motley::actors {
namespace {

struct Reply {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::none;
  std::string error;
};

/// Decodes every (problem, sample); the reply of sample s of problem p is entry p * samples + s. Empty when stopped.
std::vector<Reply> decode_all(const std::vector<envs::TaskMix::Pick>& problems, Engine& engine,
                              const envs::Tokenizer& tokenizer, const EvaluationRequest& request,
                              const std::function<bool()>& stop) {
  std::vector<Reply> replies(problems.size() * static_cast<size_t>(request.samples));
  for (size_t i = 0; i < replies.size(); ++i) {
    const envs::TaskMix::Pick& problem = problems[i / static_cast<size_t>(request.samples)];
    GenerateRequest generate;
    generate.id = i;
    generate.tokens = tokenizer.encode(problem.problem.prompt);
    generate.max_new_tokens = request.max_tokens;
    generate.stop_tokens = {tokenizer.eos()};
    generate.rule.temperature = request.temperature;
    generate.rule.top_p = request.top_p;
    generate.key = {.seed = request.seed,
                    .purpose = kernels::Purpose::eval,
                    .session = random_session(problem, i % static_cast<size_t>(request.samples)),
                    .attempt = 0};
    generate.vocabulary = tokenizer.size();
    try {
      engine.submit(std::move(generate));
    } catch (const std::invalid_argument& error) {  // a prompt that the model has no room for
      replies[i].finish = FinishReason::failed;
      replies[i].error = error.what();
    }
  }
  kernels::ComputeClient client(kernels::ComputeSide::sampler);
  const auto step = [&] {
    const kernels::ComputeLease lease(client);
    return engine.step();
  };
  while (!engine.idle()) {
    if (stop && stop()) return {};
    for (const StepOutput& output : step()) {
      Reply& reply = replies[output.id];
      reply.tokens.insert(reply.tokens.end(), output.records.tokens.begin(), output.records.tokens.end());
      reply.finish = output.finish;
      reply.error = output.error;
    }
  }
  return replies;
}

/// The reward of a finished reply, or nothing if either failed.
std::optional<envs::Reward> reward_of(const envs::TaskMix& tasks, const envs::TaskMix::Pick& problem,
                                      const Reply& reply, const envs::Tokenizer& tokenizer) {
  if (reply.finish == FinishReason::failed) return std::nullopt;
  const bool ended = reply.finish == FinishReason::stop;
  const std::span<const int32_t> tokens(reply.tokens.data(), reply.tokens.size() - (ended ? 1 : 0));
  try {
    envs::Reward reward = tasks.entries()[problem.entry].task->reward(problem.problem, tokenizer.decode(tokens), ended);
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
  Engine engine(std::move(weights), limits);
  const std::vector<Reply> replies = decode_all(problems, engine, tokenizer, request, stop);

  EvaluationResult result;
  if (replies.empty()) return result;
  std::map<int64_t, int64_t> counted;  // problems with at least k samples, by k
  double rewards = 0, format_errors = 0;
  for (size_t p = 0; p < problems.size(); ++p) {
    int64_t valid = 0, right = 0;
    for (size_t s = 0; s < static_cast<size_t>(request.samples); ++s) {
      const Reply& reply = replies[p * static_cast<size_t>(request.samples) + s];
      const auto reward = reward_of(tasks, problems[p], reply, tokenizer);
      if (!reward) {
        if (result.first_failure.empty()) result.first_failure = reply.error.empty() ? "no reward" : reply.error;
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
  result.failed = static_cast<int64_t>(replies.size()) - result.samples;
  for (auto& [k, sum] : result.pass_at) sum /= static_cast<double>(counted[k]);
  if (result.samples > 0) result.mean_reward = rewards / static_cast<double>(result.samples);
  if (result.samples > 0) result.format_error = format_errors / static_cast<double>(result.samples);
  return result;
}

}  // namespace motley::actors
