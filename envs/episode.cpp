#include "envs/episode.h"

#include <cmath>

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

std::string wrong_reward(const Reward& reward, size_t replies) {
  bool finite = std::isfinite(reward.value);
  for (const auto& [name, part] : reward.parts) finite = finite && std::isfinite(part);
  double sum = 0.0, size = 0.0;
  for (const double turn : reward.turns) {
    finite = finite && std::isfinite(turn);
    sum += turn;
    size += std::abs(turn);
  }
  if (!finite) return "not a finite number";
  if (reward.turns.empty()) return "";
  if (reward.turns.size() != replies)
    return std::to_string(reward.turns.size()) + " turns' rewards for " + std::to_string(replies) + " replies";
  // Shares of one number: each, and their sum, may be rounded.
  return std::abs(sum - reward.value) <= 1e-9 * size ? "" : "turns' rewards that do not add up to it";
}

}  // namespace motley::envs
