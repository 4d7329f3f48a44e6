#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "actors/evaluation.h"
#include "app/checkpoint_tasks.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"

namespace motley::app {
namespace {

constexpr int64_t kEvaluationSlots = 64;

actors::EvaluationRequest request_of(const EvalArguments& arguments) {
  const int64_t largest = *std::max_element(arguments.k.begin(), arguments.k.end());
  const int64_t samples = arguments.samples.value_or(largest);
  if (samples < largest) {
    throw InputError({fmt::format("--samples {}", samples)}, fmt::format("pass@{} of {} samples", largest, samples),
                     "--samples must be at least the largest k");
  }
  return {.prompts = arguments.prompts,
          .samples = samples,
          .max_tokens = arguments.max_tokens,
          .k = arguments.k,
          .temperature = arguments.temperature,
          .top_p = arguments.top_p,
          .seed = arguments.seed,
          .sets = arguments.sets,
          .threads = std::max<int64_t>(4, 2 * static_cast<int64_t>(std::thread::hardware_concurrency()))};
}

std::string pass_line(int64_t k, const actors::EvaluationResult::PassAt& pass, int64_t prompts) {
  if (pass.problems == 0) return fmt::format("pass@{:<4} none: no prompt has {} samples that did not fail\n", k, k);
  std::string text = fmt::format("pass@{:<4} {:.4f}", k, pass.value);
  if (std::isfinite(pass.standard_error)) text += fmt::format(" +- {:.4f}", pass.standard_error);
  if (pass.problems < prompts) text += fmt::format(" of {} prompts; the others have fewer samples", pass.problems);
  return text + "\n";
}

std::string table(const actors::EvaluationResult& result) {
  std::string text;
  for (const auto& [k, pass] : result.pass_at) text += pass_line(k, pass, result.prompts);
  std::string ends;
  for (const auto& [end, count] : result.ends) ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", end, count);
  return text + fmt::format(
                    "reward    {:.4f}\nformat errors {:.4f}\nreplies   {:.2f} of an episode, {:.2f} of them not in "
                    "form; {:.1f} tokens\nends      {}\n{} prompts, {} samples, {} failed\n",
                    result.mean_reward, result.format_error, result.turns, result.format_errors, result.tokens, ends,
                    result.prompts, result.samples, result.failed);
}

nlohmann::json to_json(const actors::EvaluationResult& result) {
  nlohmann::json pass_at = nlohmann::json::object(), errors = pass_at, problems = pass_at, ends = pass_at;
  for (const auto& [k, pass] : result.pass_at) {  // NaN is null
    pass_at[std::to_string(k)] = pass.value;
    errors[std::to_string(k)] = pass.standard_error;
    problems[std::to_string(k)] = pass.problems;
  }
  for (const auto& [end, count] : result.ends) ends[end] = count;
  return {{"pass_at", pass_at},
          {"standard_error", errors},
          {"pass_prompts", problems},
          {"reward", result.mean_reward},
          {"format_error", result.format_error},
          {"turns", result.turns},
          {"tokens", result.tokens},
          {"format_errors", result.format_errors},
          {"ends", ends},
          {"prompts", result.prompts},
          {"samples", result.samples},
          {"failed", result.failed},
          {"first_failure", result.first_failure}};
}

/// The first set's values stand at the top, all sets' under "sets".
nlohmann::json to_json(const EvalArguments& arguments, const Policy& policy,
                       const std::vector<actors::EvaluationResult>& results) {
  nlohmann::json json = to_json(results.front());
  json.update({{"checkpoint", policy.folder.string()},
               {"task", arguments.task},
               {"profile", arguments.profile},
               {"device", arguments.device},
               {"temperature", arguments.temperature},
               {"top_p", arguments.top_p},
               {"seed", arguments.seed}});
  for (const actors::EvaluationResult& result : results) json["sets"][result.set] = to_json(result);
  return json;
}

}  // namespace

int eval_command(const EvalArguments& arguments) {
  const kernels::Device device = device_argument(arguments.device);
  const actors::EvaluationRequest request = request_of(arguments);
  const envs::TaskMix tasks = checkpoint_tasks(arguments.checkpoint, arguments.task, arguments.options, arguments.seed);
  for (const std::string& set : arguments.sets) tasks.held_out_set(set, 1);  // or it throws
  const Policy policy = open_policy(arguments.checkpoint, arguments.profile, device);
  require_symbols(tasks, policy.need_tokenizer(), "task", arguments.task);
  for (const envs::TaskMix::Entry& entry : tasks.entries()) entry.task->require();
  const auto results = actors::evaluate(policy.weights, tasks, policy.need_tokenizer(), request, kEvaluationSlots);
  for (const actors::EvaluationResult& result : results)
    if (result.samples == 0)
      throw std::runtime_error(fmt::format("every one of {} samples failed: {}", result.failed, result.first_failure));
  if (arguments.json) {
    const nlohmann::json json = to_json(arguments, policy, results);
    std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const actors::EvaluationResult& result : results) {
    if (results.size() > 1) std::printf("%s:\n", result.set.c_str());
    std::fputs(table(result).c_str(), stdout);
  }
  return 0;
}

}  // namespace motley::app
