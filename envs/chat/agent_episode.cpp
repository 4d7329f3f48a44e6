#include "envs/chat/agent_episode.h"

#include <algorithm>
#include <stdexcept>

namespace motley::envs {

std::string_view name_of(EpisodeEnd end) {
  switch (end) {
    case EpisodeEnd::submitted:
      return "submitted";
    case EpisodeEnd::turn_limit:
      return "turn_limit";
    case EpisodeEnd::token_limit:
      return "token_limit";
    case EpisodeEnd::format_errors:
      return "format_errors";
    case EpisodeEnd::time_limit:
      return "time_limit";
    case EpisodeEnd::failed:
      return "failed";
  }
  return "failed";
}

AgentEpisode::AgentEpisode(const ChatFormat& format, const AgentLimits& limits, std::string_view system,
                           std::string_view issue)
    : format_(&format), limits_(limits) {
  read(format.begin(system, issue));
}

void AgentEpisode::read(const Tokens& tokens) {
  context_.insert(context_.end(), tokens.begin(), tokens.end());
  drawn_.resize(context_.size(), 0);
}

int64_t AgentEpisode::room() const { return limits_.tokens - static_cast<int64_t>(context_.size()); }

void AgentEpisode::expect(Waiting state) const {
  if (waiting_ != state || end_) throw std::logic_error("an agent episode was told what it did not ask for");
}

AgentEpisode::Next AgentEpisode::finish(EpisodeEnd reason) {
  waiting_ = Waiting::nothing;
  end_ = reason;
  return Ended{reason};
}

AgentEpisode::Next AgentEpisode::ask() {
  if (static_cast<int64_t>(turns_.size()) >= limits_.turns) return finish(EpisodeEnd::turn_limit);
  if (room() < 1) return finish(EpisodeEnd::token_limit);
  waiting_ = Waiting::reply;
  return Ask{std::min(limits_.reply_tokens, room())};
}

AgentEpisode::Next AgentEpisode::begin() {
  expect(Waiting::nothing);
  return ask();
}

AgentEpisode::Next AgentEpisode::replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) {
  expect(Waiting::reply);
  if (!std::equal(prompt.begin(), prompt.end(), context_.begin(), context_.end()))
    throw std::logic_error("a turn was sampled after other tokens than those of the episode so far");
  context_.insert(context_.end(), reply.begin(), reply.end());
  drawn_.resize(context_.size(), 1);
  turns_.push_back(static_cast<uint32_t>(reply.size()));
  last_ended_ = !reply.empty() && reply.back() == format_->tokenizer().eos();
  const ParsedReply parsed = format_->parse(reply);
  if (!parsed.call) {
    ++format_errors_;
    if (!last_ended_ && room() < 1) return finish(EpisodeEnd::token_limit);
    if (++errors_in_a_row_ >= limits_.format_errors) return finish(EpisodeEnd::format_errors);
    const Tokens note = format_->note_error(last_ended_, parsed.error);
    if (static_cast<int64_t>(turns_.size()) >= limits_.turns) return finish(EpisodeEnd::turn_limit);
    if (static_cast<int64_t>(note.size()) >= room()) return finish(EpisodeEnd::token_limit);
    read(note);
    return ask();
  }
  errors_in_a_row_ = 0;
  if (parsed.call->tool == ToolCall::Tool::submit) return finish(EpisodeEnd::submitted);
  waiting_ = Waiting::result;
  return Run{parsed.call->command, limits_.seconds - seconds_};
}

AgentEpisode::Next AgentEpisode::observed(const Observation& observation, double seconds) {
  expect(Waiting::result);
  seconds_ += std::max(seconds, 0.0);  // NaN stays, and ends the episode
  if (!(seconds_ < limits_.seconds)) return finish(EpisodeEnd::time_limit);
  if (static_cast<int64_t>(turns_.size()) >= limits_.turns) return finish(EpisodeEnd::turn_limit);
  const Tokens result = format_->observe(last_ended_, observation, static_cast<size_t>(limits_.observation_tokens));
  if (static_cast<int64_t>(result.size()) >= room()) return finish(EpisodeEnd::token_limit);
  read(result);
  return ask();
}

AgentEpisode::Next AgentEpisode::fail() {
  if (end_) throw std::logic_error("an agent episode that has ended cannot fail");
  return finish(EpisodeEnd::failed);
}

}  // namespace motley::envs
