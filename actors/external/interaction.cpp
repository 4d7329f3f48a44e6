#include "actors/external/interaction.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

namespace motley::actors {
namespace {

/// Unlike that of any other process that the server has met.
std::string new_episode() {
  static const auto start = std::chrono::system_clock::now().time_since_epoch().count();
  static std::atomic<uint64_t> count{0};
  return fmt::format("{}-{:x}-{}", getpid(), start, ++count);
}

}  // namespace

ExternalInteraction::ExternalInteraction(std::shared_ptr<ExternalClient> client,
                                         std::shared_ptr<const ExternalInfo> info, const envs::Problem& problem,
                                         const envs::Tokenizer& tokenizer, const envs::InteractionLimits& model,
                                         const ExternalEpisodeLimits& own)
    : client_(std::move(client)),
      info_(std::move(info)),
      tokenizer_(&tokenizer),
      turns_left_(own.turns),
      tokens_(own.tokens > 0 ? std::min(own.tokens, model.tokens) : model.tokens),
      reply_tokens_(model.reply_tokens),
      episode_(new_episode()) {
  read(problem.prompt);
  ExternalAnswer answer = client_->ask(about("begin", problem).text("episode", episode_));
  demonstration_ = answer.optional_text("demonstration", kMostTextBytes);
  answer.done();
}

ExternalInteraction::~ExternalInteraction() {
  try {
    client_->tell(request("close"));
  } catch (const std::exception&) {  // a server that is gone has forgotten the episode
  }
}

ExternalRequest ExternalInteraction::request(std::string what) const {
  ExternalRequest request(std::move(what));
  request.text("episode", episode_);
  return request;
}

void ExternalInteraction::read(std::string_view text) {
  const std::vector<int32_t> tokens = tokenizer_->encode(text);
  context_.insert(context_.end(), tokens.begin(), tokens.end());
  drawn_.resize(context_.size(), 0);
}

std::optional<int64_t> ExternalInteraction::finish(std::string end, bool truncated) {
  outcome_.end = std::move(end);
  outcome_.truncated = truncated;
  return std::nullopt;
}

std::optional<int64_t> ExternalInteraction::fail(const std::string& reason) {
  outcome_.failure = reason;
  return finish("failed", false);
}

std::optional<int64_t> ExternalInteraction::ask() {
  if (turns_left_ < 1) return finish("turn_limit", true);
  if (room() < 1) return finish("token_limit", true);
  return std::min(reply_tokens_, room());
}

std::optional<int64_t> ExternalInteraction::begin() { return ask(); }

std::optional<int64_t> ExternalInteraction::replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) {
  if (!std::equal(prompt.begin(), prompt.end(), context_.begin(), context_.end()))
    throw std::logic_error("a turn was sampled after other tokens than those of the episode so far");
  context_.insert(context_.end(), reply.begin(), reply.end());
  drawn_.resize(context_.size(), 1);
  --turns_left_;
  const bool ended = !reply.empty() && reply.back() == tokenizer_->eos();
  try {
    ExternalAnswer answer =
        client_->ask(request("reply")
                         .number("turn", static_cast<uint64_t>(turn_++))
                         .text("reply", tokenizer_->decode(reply.first(reply.size() - (ended ? 1 : 0))))
                         .boolean("ended", ended));
    if (answer.has("reward") == answer.has("observation"))
      answer.refuse("needs one of \"observation\" (the episode goes on) and \"reward\" (it is over)");
    if (answer.has("reward")) {
      take_reward(answer);
      return std::nullopt;
    }
    const std::string observation = answer.text("observation", kMostTextBytes);
    outcome_.format_errors += answer.boolean("format_error", false) ? 1 : 0;
    demonstration_ = answer.optional_text("demonstration", kMostTextBytes);
    answer.done();
    if (turns_left_ < 1) return finish("turn_limit", true);
    const size_t sampled = context_.size();
    if (!ended) {  // every reply in the context has its end token
      context_.push_back(tokenizer_->eos());
      drawn_.push_back(0);
    }
    read(observation);
    if (room() >= 1) return ask();
    context_.resize(sampled);
    drawn_.resize(sampled);
    return finish("token_limit", true);
  } catch (const ExternalError& error) {
    return fail(error.what());
  } catch (const std::invalid_argument& error) {
    return fail(fmt::format("{}, \"reply\": \"observation\": {}", client_->address(), error.what()));
  }
}

void ExternalInteraction::take_reward(ExternalAnswer& answer) {
  outcome_.reward = read_reward(answer, *info_);
  const std::string end = answer.optional_text("end", kMostTextBytes).value_or("ended");
  answer.done();
  if (!is_word(end)) answer.refuse("\"end\" is no word of a-z, 0-9 and _, at most 32");
  outcome_.format_errors += outcome_.reward.format_error ? 1 : 0;
  scored_ = true;
  if (outcome_.end.empty()) finish(end, false);
}

envs::InteractionOutcome ExternalInteraction::outcome() {
  if (!scored_ && outcome_.failure.empty()) {
    try {
      ExternalAnswer answer = client_->ask(request("end").text("reason", outcome_.end));
      take_reward(answer);
    } catch (const ExternalError& error) {
      fail(error.what());
    }
  }
  outcome_.reward.format_error = outcome_.format_errors > 0;
  return outcome_;
}

}  // namespace motley::actors
