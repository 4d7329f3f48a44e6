// Calls into tasks on their way to a worker elsewhere, what they come to on the way back, and everything that is none.
#include "actors/remote/work_wire.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

namespace motley::actors {
namespace {

constexpr int64_t kIds = 100;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

EpisodeJob some_job() {
  EpisodeJob job;
  job.call = EpisodeJob::Call::reply;
  job.training = ~uint64_t{0} - 1;
  job.interaction = 7;
  job.turns = 3;
  job.replies = {{"a\0b", true}, {std::string("\xff", 1), false}};
  job.prompt = {1, 2, 99};
  job.drawn = {0};
  return job;
}

EpisodeStep some_outcome() {
  EpisodeStep step;
  step.outcome.reward.value = -0.0;
  step.outcome.reward.parts = {{"tiny", 5e-324}, {"minus", -1.0}};
  step.outcome.reward.turns = {0.1, -0.1};
  step.outcome.reward.format_error = true;
  step.outcome.end = "turn_limit";
  step.outcome.format_errors = 2;
  step.outcome.truncated = true;
  return step;
}

EpisodeStep some_question() {
  EpisodeStep step;
  step.reply_tokens = 5;
  step.read = {1, 99};
  return step;
}

constexpr StepLimits kLimits{.vocabulary = kIds, .positions = 20, .context = 4, .replies = 2};

}  // namespace

TEST_CASE("a call and what it came to come back bit for bit") {
  const EpisodeJob job = some_job();
  const auto [number, back] = parse_work(work_body(~uint64_t{0}, job), kIds);
  CHECK(number == ~uint64_t{0});
  CHECK(back.call == job.call);
  CHECK(back.training == job.training);
  CHECK(back.interaction == job.interaction);
  CHECK(back.turns == job.turns);
  REQUIRE(back.replies.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(back.replies[i].text == job.replies[i].text);
    CHECK(back.replies[i].ended == job.replies[i].ended);
  }
  CHECK(back.prompt == job.prompt);
  CHECK(back.drawn == job.drawn);

  const EpisodeStep outcome = some_outcome();
  const auto [answered, step] = parse_worked(worked_body(3, outcome));
  CHECK(answered == 3);
  CHECK_FALSE(step.reply_tokens);
  CHECK(std::signbit(step.outcome.reward.value));
  CHECK(step.outcome.reward.parts == outcome.outcome.reward.parts);
  CHECK(std::bit_cast<uint64_t>(step.outcome.reward.parts.at("tiny")) == 1);
  CHECK(step.outcome.reward.turns == outcome.outcome.reward.turns);
  CHECK(step.outcome.reward.format_error);
  CHECK(step.outcome.end == "turn_limit");
  CHECK(step.outcome.format_errors == 2);
  CHECK(step.outcome.truncated);
  CHECK(step.outcome.failure.empty());
  const auto question = parse_worked(worked_body(4, some_question())).second;
  CHECK(question.reply_tokens == 5);
  CHECK(question.read == std::vector<int32_t>{1, 99});

  const ReadyBody ready = parse_ready(ready_body({8, {{"gsm8k", ~uint64_t{0}}, {"gsm8k#2", 0}}}));
  CHECK(ready.slots == 8);
  CHECK(ready.tasks == std::vector<TaskDigest>{{"gsm8k", ~uint64_t{0}}, {"gsm8k#2", 0}});
}

TEST_CASE("calls and answers that are cut short, or have a byte changed, are refused or still make sense") {
  using Parse = std::function<void(std::string_view)>;
  const std::vector<std::pair<std::string, Parse>> cases{
      {work_body(1, some_job()), [](std::string_view bytes) { parse_work(bytes, kIds); }},
      {worked_body(1, some_outcome()), [](std::string_view bytes) { parse_worked(bytes); }},
      {ready_body({8, {{"gsm8k", 3}}}), [](std::string_view bytes) { parse_ready(bytes); }}};
  for (const auto& [body, parse] : cases) {
    for (size_t length = 0; length < body.size(); ++length)
      CHECK_THROWS_AS(parse(std::string_view(body).substr(0, length)), WireError);
    for (size_t place = 0; place < body.size(); ++place)
      for (const int change : {1, 0x80, 0xff}) {
        std::string wrong = body;
        wrong[place] = static_cast<char>(wrong[place] ^ change);
        try {
          parse(wrong);
        } catch (const WireError&) {
        }
      }
  }
}

TEST_CASE("calls and answers out of range are refused") {
  const auto job_refused = [](const std::function<void(EpisodeJob&)>& change) {
    EpisodeJob job = some_job();
    change(job);
    CHECK_THROWS_AS(parse_work(work_body(1, job), kIds), WireError);
  };
  job_refused([](EpisodeJob& j) { j.prompt[0] = kIds; });
  job_refused([](EpisodeJob& j) { j.drawn[0] = -1; });
  job_refused([](EpisodeJob& j) { j.call = EpisodeJob::Call::score, j.replies.clear(); });
  CHECK_THROWS_AS(parse_ready(ready_body({0, {}})), WireError);
  CHECK_THROWS_AS(parse_ready(ready_body({kMostSlots + 1, {}})), WireError);

  CHECK(wrong_step(some_question(), kLimits).empty());
  CHECK(wrong_step(some_outcome(), kLimits).empty());
  const auto wrong = [](EpisodeStep step, const std::function<void(EpisodeStep&)>& change, const std::string& text) {
    change(step);
    CHECK(wrong_step(step, kLimits).find(text) != std::string::npos);
  };
  wrong(
      some_question(), [](EpisodeStep& s) { s.read[0] = kIds; }, "a token outside the vocabulary");
  wrong(
      some_question(), [](EpisodeStep& s) { s.read[0] = -1; }, "a token outside the vocabulary");
  wrong(
      some_question(), [](EpisodeStep& s) { s.reply_tokens = 15; }, "a reply of 15 tokens where there is room for 14");
  wrong(
      some_question(), [](EpisodeStep& s) { s.read.resize(17); }, "where there is room for -1");
  wrong(
      some_outcome(), [](EpisodeStep& s) { s.outcome.reward.value = kNaN; }, "not a finite number");
  wrong(
      some_outcome(), [](EpisodeStep& s) { s.outcome.reward.parts["tiny"] = 1 / 0.0; }, "not a finite number");
  wrong(
      some_outcome(), [](EpisodeStep& s) { s.outcome.reward.turns.push_back(0.0); }, "3 turns' rewards for 2 replies");
  wrong(
      some_outcome(), [](EpisodeStep& s) { s.outcome.reward.value = 1.0; }, "do not add up");
  wrong(
      some_outcome(), [](EpisodeStep& s) { s.outcome.end = "the/end"; }, "no word");
  wrong(
      some_outcome(), [](EpisodeStep& s) { s.outcome.format_errors = 3; }, "format errors");
  EpisodeStep to_nothing = some_question();
  to_nothing.read.clear();
  StepLimits at_first = kLimits;
  at_first.context = 0;
  CHECK(wrong_step(to_nothing, at_first) == "a reply to nothing");
}

}  // namespace motley::actors
