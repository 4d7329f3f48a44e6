#include "actors/interaction_driver.h"

#include <algorithm>

#include "envs/episode.h"

namespace motley::actors {

bool is_ending(const std::string& text) {
  constexpr size_t kLongest = 32;
  return !text.empty() && text.size() <= kLongest && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

InteractionDriver::InteractionDriver(const envs::TaskMix& tasks, std::shared_ptr<const envs::TaskMix::Pick> pick,
                                     const envs::Tokenizer& tokenizer, const envs::InteractionLimits& limits)
    : tasks_(tasks), pick_(std::move(pick)), tokenizer_(tokenizer), limits_(limits) {}

EpisodeStep InteractionDriver::begin() {
  return step([this]() -> std::optional<int64_t> {
    interaction_ = tasks_.entries()[pick_->entry].task->interact(pick_->problem, tokenizer_, limits_);
    return interaction_->begin();
  });
}

EpisodeStep InteractionDriver::replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) {
  known_.assign(prompt.begin(), prompt.end());
  known_.insert(known_.end(), reply.begin(), reply.end());
  drawn_.resize(prompt.size(), 0);
  drawn_.resize(known_.size(), 1);
  ++replies_;
  return step([&] { return interaction_->replied(prompt, reply); });
}

template <class Call>
EpisodeStep InteractionDriver::step(const Call& call) {
  try {
    const std::optional<int64_t> wanted = call();
    return wanted ? go_on(*wanted) : score();
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("an exception that is no std::exception");
  }
}

EpisodeStep InteractionDriver::go_on(int64_t wanted) {
  const std::vector<int32_t>& context = interaction_->context();
  const std::vector<uint8_t>& drawn = interaction_->drawn();
  // Token in, token out: what was read and drawn stays as it was, and only what was read is added.
  const bool same = context.size() == drawn.size() && context.size() >= known_.size() &&
                    std::equal(known_.begin(), known_.end(), context.begin()) &&
                    std::equal(drawn_.begin(), drawn_.end(), drawn.begin()) &&
                    std::all_of(drawn.begin() + static_cast<int64_t>(known_.size()), drawn.end(),
                                [](uint8_t flag) { return flag == 0; });
  if (!same) return fail("its context is not what was read and drawn so far, and then what is read next");
  const int64_t room = limits_.tokens - static_cast<int64_t>(context.size());
  if (wanted < 1 || room < 1)
    return fail("it asks for a reply of " + std::to_string(wanted) + " tokens where there is room for " +
                std::to_string(room));
  if (context.empty()) return fail("it asks for a reply to nothing");
  EpisodeStep next;
  next.reply_tokens = std::min({wanted, limits_.reply_tokens, room});
  next.read.assign(context.begin() + static_cast<int64_t>(known_.size()), context.end());
  drawn_.resize(context.size(), 0);
  return next;
}

EpisodeStep InteractionDriver::score() {
  EpisodeStep over;
  over.outcome = interaction_->outcome();
  interaction_.reset();
  if (!over.outcome.failure.empty()) return fail(over.outcome.failure);
  if (const std::string wrong = envs::wrong_reward(over.outcome.reward, replies_); !wrong.empty())
    return fail("its reward is " + wrong);
  if (!is_ending(over.outcome.end))
    return fail("it ended by \"" + over.outcome.end.substr(0, 40) + "\", which is no word of a-z, 0-9 and _");
  return over;
}

EpisodeStep InteractionDriver::fail(const std::string& why) {
  EpisodeStep failed;
  failed.outcome.end = "failed";
  failed.outcome.failure = "the episode of task " + tasks_.entries()[pick_->entry].name + " failed: " + why;
  interaction_.reset();
  return failed;
}

}  // namespace motley::actors
