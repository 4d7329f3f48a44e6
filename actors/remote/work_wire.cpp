#include "actors/remote/work_wire.h"

#include <algorithm>
#include <array>

#include "actors/remote/fields.h"
#include "envs/episode.h"

namespace motley::actors {
namespace {

constexpr size_t kMostTasks = 1024;
constexpr size_t kMostWorkName = 256, kMostFailure = 4096, kMostReply = size_t{64} << 20;  // bytes
constexpr size_t kMostReplies = 65536, kMostRewardParts = 4096;
constexpr uint64_t kMostCount = uint64_t{1} << 31;
constexpr std::array<std::string_view, 4> kCalls{"score", "begin", "reply", "drop"};

std::string body_of(const msgpack::sbuffer& buffer) { return {buffer.data(), buffer.size()}; }

bool in_vocabulary(const std::vector<int32_t>& tokens, int64_t vocabulary) {
  return std::all_of(tokens.begin(), tokens.end(), [&](int32_t id) { return id >= 0 && id < vocabulary; });
}

std::vector<int32_t> token_array(const Fields& fields, std::string_view key, int64_t vocabulary) {
  std::vector<int32_t> tokens = fields.array<int32_t>(key);
  if (!in_vocabulary(tokens, vocabulary)) Fields::fail(key, "holds an id outside the vocabulary");
  return tokens;
}

bool flag_field(const Fields& fields, std::string_view key) { return fields.number(key, 1) == 1; }

std::string wrong_outcome(const envs::InteractionOutcome& outcome, size_t replies) {
  if (!outcome.end.empty() && !is_ending(outcome.end)) return "an ending that is no word of a-z, 0-9 and _";
  if (outcome.format_errors < 0 || static_cast<uint64_t>(outcome.format_errors) > replies)
    return "format errors of more replies than there are";
  if (!outcome.failure.empty()) return {};  // there is no reward
  if (outcome.reward.parts.size() > kMostRewardParts) return "a reward of too many parts";
  for (const auto& [name, value] : outcome.reward.parts)
    if (name.size() > kMostWorkName) return "a part of the reward with too long a name";
  const std::string wrong = envs::wrong_reward(outcome.reward, replies);
  return wrong.empty() ? wrong : "a reward that is " + wrong;
}

}  // namespace

std::string wrong_step(const EpisodeStep& step, const StepLimits& limits) {
  if (!step.reply_tokens) return wrong_outcome(step.outcome, limits.replies);
  if (!in_vocabulary(step.read, limits.vocabulary)) return "a token outside the vocabulary";
  const int64_t context = limits.context + static_cast<int64_t>(step.read.size());
  if (context < 1) return "a reply to nothing";
  if (*step.reply_tokens < 1 || *step.reply_tokens > limits.positions - context)
    return "a reply of " + std::to_string(*step.reply_tokens) + " tokens where there is room for " +
           std::to_string(limits.positions - context);
  return {};
}

std::string ready_body(const ReadyBody& ready) {
  msgpack::sbuffer out;
  MapWriter(out, 2).field("slots", ready.slots).list("tasks", ready.tasks.size());
  for (const TaskDigest& task : ready.tasks) MapWriter(out, 2).field("name", task.name).field("digest", task.digest);
  return body_of(out);
}

std::string work_body(uint64_t number, const EpisodeJob& job) {
  msgpack::sbuffer out;
  MapWriter(out, 8)
      .field("number", number)
      .field("call", kCalls[static_cast<size_t>(job.call)])
      .field("interaction", job.interaction)
      .field("training", job.training)
      .field("turns", job.turns)
      .array("prompt", job.prompt)
      .array("drawn", job.drawn)
      .list("replies", job.replies.size());
  for (const envs::Reply& reply : job.replies)
    MapWriter(out, 2).field("text", std::string_view(reply.text)).field("ended", reply.ended ? 1 : 0);
  return body_of(out);
}

std::string worked_body(uint64_t number, const EpisodeStep& step) {
  const envs::InteractionOutcome& outcome = step.outcome;
  std::vector<double> values;
  for (const auto& [name, value] : outcome.reward.parts) values.push_back(value);
  msgpack::sbuffer out;
  MapWriter(out, 12)
      .field("number", number)
      .field("reply_tokens", step.reply_tokens.value_or(0))
      .array("read", step.read)
      .field("end", std::string_view(outcome.end))
      .field("failure", std::string_view(outcome.failure).substr(0, kMostFailure))
      .field("format_errors", outcome.format_errors)
      .field("truncated", outcome.truncated ? 1 : 0)
      .field("format_error", outcome.reward.format_error ? 1 : 0)
      .array("value", std::vector<double>{outcome.reward.value})  // msgpack's own numbers lose the sign of -0
      .array("turns", outcome.reward.turns)
      .array("part_values", values)
      .list("parts", values.size());
  msgpack::packer<msgpack::sbuffer> packer(out);
  for (const auto& [name, value] : outcome.reward.parts) packer.pack(name);
  return body_of(out);
}

ReadyBody parse_ready(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  ReadyBody ready{.slots = fields.number("slots", kMostSlots), .tasks = {}};
  if (ready.slots == 0) Fields::fail("slots", "is 0");
  for (const msgpack::object* object : fields.list("tasks", kMostTasks)) {
    const Fields task(*object);
    ready.tasks.push_back({std::string(task.text("name", kMostWorkName)), task.number("digest")});
  }
  return ready;
}

std::pair<uint64_t, EpisodeJob> parse_work(std::string_view body, int64_t vocabulary) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  const auto call = std::find(kCalls.begin(), kCalls.end(), fields.text("call", 16));
  if (call == kCalls.end()) Fields::fail("call", "is no call into a task");
  EpisodeJob job;
  job.call = static_cast<EpisodeJob::Call>(call - kCalls.begin());
  job.interaction = fields.number("interaction");
  job.training = fields.number("training");
  job.turns = fields.number("turns", kMostReplies);
  job.prompt = token_array(fields, "prompt", vocabulary);
  job.drawn = token_array(fields, "drawn", vocabulary);
  for (const msgpack::object* object : fields.list("replies", kMostReplies)) {
    const Fields reply(*object);
    job.replies.push_back({std::string(reply.text("text", kMostReply)), flag_field(reply, "ended")});
  }
  if (job.call == EpisodeJob::Call::score && job.replies.empty()) Fields::fail("replies", "is empty");
  return {fields.number("number"), std::move(job)};
}

std::pair<uint64_t, EpisodeStep> parse_worked(std::string_view body) {
  const msgpack::object_handle handle = unpack_body(body);
  const Fields fields(handle.get());
  EpisodeStep step;
  if (const uint64_t tokens = fields.number("reply_tokens", kMostCount); tokens > 0)
    step.reply_tokens = static_cast<int64_t>(tokens);
  step.read = fields.array<int32_t>("read");
  envs::InteractionOutcome& outcome = step.outcome;
  outcome.end = fields.text("end", kMostWorkName);
  outcome.failure = fields.text("failure", kMostFailure);
  outcome.format_errors = static_cast<int64_t>(fields.number("format_errors", kMostCount));
  outcome.truncated = flag_field(fields, "truncated");
  outcome.reward.format_error = flag_field(fields, "format_error");
  const std::vector<double> value = fields.array<double>("value"), parts = fields.array<double>("part_values");
  if (value.size() != 1) Fields::fail("value", "is not one number");
  outcome.reward.value = value[0];
  outcome.reward.turns = fields.array<double>("turns");
  const auto names = fields.list("parts", kMostRewardParts);
  if (names.size() != parts.size()) Fields::fail("parts", "are not as many as their values");
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i]->type != msgpack::type::STR || names[i]->via.str.size > kMostWorkName)
      Fields::fail("parts", "holds what is no name");
    if (!outcome.reward.parts.emplace(std::string(names[i]->via.str.ptr, names[i]->via.str.size), parts[i]).second)
      Fields::fail("parts", "holds a name twice");
  }
  return {fields.number("number"), std::move(step)};
}

}  // namespace motley::actors
