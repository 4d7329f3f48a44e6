#include "envs/episode.h"

namespace motley::envs {

const Problem* next_question(const Problem& problem, std::span<const Reply> replies) {
  if (!replies.back().ended || replies.size() > problem.more.size()) return nullptr;
  return &problem.more[replies.size() - 1];
}

Reward episode_reward(const Task& task, const Problem& problem, std::span<const Reply> replies) {
  if (problem.more.empty()) return task.reward(problem, replies.front().text, replies.front().ended);
  const auto questions = static_cast<double>(1 + problem.more.size());
  Reward whole;
  for (size_t k = 0; k < replies.size(); ++k) {
    const Problem& question = k == 0 ? problem : problem.more[k - 1];
    const Reward one = task.reward(question, replies[k].text, replies[k].ended);
    whole.value += one.value;
    whole.turns.push_back(one.value / questions);
    for (const auto& [name, part] : one.parts) whole.parts[name] += part;
    whole.format_error = whole.format_error || one.format_error;
  }
  whole.value /= questions;
  for (auto& [name, part] : whole.parts) part /= questions;
  return whole;
}

}  // namespace motley::envs
