// Episodes of one question or several: what is asked next, and what the replies together are worth.
#pragma once

#include <span>

#include "envs/environment.h"

namespace motley::envs {

/// What is asked after so many replies, at least one; null: the episode is over. A reply that did not end with the end
/// token (it was cut off) is the last.
const Problem* next_question(const Problem& problem, std::span<const Reply> replies);

/// Each reply is scored by its own question. The episode's reward and its parts are means over all questions, those
/// that were never asked counting 0, so that 1 means that all is right; one malformed reply makes a format error. Of an
/// episode of several questions Reward::turns says what each reply adds to the mean. Throws what the task throws.
Reward episode_reward(const Task& task, const Problem& problem, std::span<const Reply> replies);

/// Empty, or what makes a reward of an episode of so many replies unusable: a number that is not finite, turns that are
/// not those of the replies or do not add up to the reward.
std::string wrong_reward(const Reward& reward, size_t replies);

}  // namespace motley::envs
