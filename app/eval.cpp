#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "actors/evaluation.h"
#include "app/checkpoint_tasks.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"

namespace motley::app {
namespace {

constexpr int64_t kSlots = 64;

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
          .seed = arguments.seed};
}

std::string table(const actors::EvaluationResult& result) {
  std::string text;
  for (const auto& [k, value] : result.pass_at) text += fmt::format("pass@{:<4} {:.4f}\n", k, value);
  return text + fmt::format("reward    {:.4f}\nformat errors {:.4f}\n{} prompts, {} samples, {} failed\n",
                            result.mean_reward, result.format_error, result.prompts, result.samples, result.failed);
}

nlohmann::json to_json(const EvalArguments& arguments, const Policy& policy, const actors::EvaluationResult& result) {
  nlohmann::json pass;
  for (const auto& [k, value] : result.pass_at) pass[std::to_string(k)] = value;
  return {{"checkpoint", policy.folder.string()},
          {"task", arguments.task},
          {"profile", arguments.profile},
          {"device", arguments.device},
          {"temperature", arguments.temperature},
          {"top_p", arguments.top_p},
          {"seed", arguments.seed},
          {"pass_at", pass},
          {"reward", result.mean_reward},
          {"format_error", result.format_error},
          {"prompts", result.prompts},
          {"samples", result.samples},
          {"failed", result.failed}};
}

}  // namespace

int eval_command(const EvalArguments& arguments) {
  const kernels::Device device = device_argument(arguments.device);
  const actors::EvaluationRequest request = request_of(arguments);
  const envs::TaskMix tasks = checkpoint_tasks(arguments.checkpoint, arguments.task, arguments.options, arguments.seed);
  const Policy policy = open_policy(arguments.checkpoint, arguments.profile, device);
  require_symbols(tasks, policy.need_tokenizer(), "task", arguments.task);
  const auto result = actors::evaluate(policy.weights, tasks, policy.need_tokenizer(), request, kSlots);
  if (result.samples == 0)
    throw std::runtime_error(fmt::format("every one of {} samples failed: {}", result.failed, result.first_failure));
  const std::string text = arguments.json ? to_json(arguments, policy, result).dump() + "\n" : table(result);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace motley::app
