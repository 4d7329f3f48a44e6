// The episode of an agent: what happens after each reply and each result, with a shell that is only pretended.
#include "envs/chat/agent_episode.h"

#include <catch2/catch.hpp>

#include "envs/chat/demonstration.h"
#include "envs/environment.h"

using Catch::Matchers::Contains;

namespace motley::envs {
namespace {

using Ask = AgentEpisode::Ask;
using Run = AgentEpisode::Run;
using Ended = AgentEpisode::Ended;

struct Fixture {
  Tokenizer tokenizer{{"ab"}, true};
  ChatFormat format{"compact", tokenizer};
  AgentLimits limits{.turns = 5, .tokens = 100, .reply_tokens = 20, .observation_tokens = 30, .seconds = 10};

  AgentEpisode episode() const { return {format, limits, "", "fix"}; }
  Tokens reply(const std::string& text, bool ended = true) const {
    Tokens ids = tokenizer.encode(text);
    if (ended) ids.push_back(tokenizer.eos());
    return ids;
  }
  AgentEpisode::Next say(AgentEpisode& episode, const std::string& text, bool ended = true) const {
    return episode.replied(Tokens(episode.context()), reply(text, ended));
  }
};

template <typename T>
T as(const AgentEpisode::Next& next) {
  REQUIRE(std::holds_alternative<T>(next));
  return std::get<T>(next);
}

}  // namespace

TEST_CASE("an episode: look, mend, submit; tokens and masks are those that were read and drawn") {
  const Fixture f;
  AgentEpisode episode = f.episode();
  CHECK(as<Ask>(episode.begin()).most_tokens == 20);
  CHECK(episode.context() == f.format.begin("", "fix"));
  Tokens wanted = episode.context();
  std::vector<uint8_t> mask(wanted.size(), 0);
  const auto grow = [&](const Tokens& more, uint8_t drawn) {
    wanted.insert(wanted.end(), more.begin(), more.end());
    mask.resize(wanted.size(), drawn);
  };
  CHECK(as<Run>(f.say(episode, "$cat f")).command == "cat f");
  grow(f.reply("$cat f"), 1);
  CHECK(as<Ask>(episode.observed({"ab\n"}, 1.0)).most_tokens == 20);
  grow(f.format.observe(true, {"ab\n"}), 0);
  CHECK(as<Run>(f.say(episode, "$rm f")).seconds == 9.0);
  grow(f.reply("$rm f"), 1);
  CHECK(as<Ask>(episode.observed({"", 1}, 0.5)).most_tokens == 20);
  grow(f.format.observe(true, {"", 1}), 0);
  CHECK(as<Ended>(f.say(episode, ".")).reason == EpisodeEnd::submitted);
  grow(f.reply("."), 1);
  CHECK(episode.context() == wanted);
  CHECK(episode.drawn() == mask);
  CHECK(episode.turns() == std::vector<uint32_t>{7, 6, 2});
  CHECK(episode.format_errors() == 0);
  CHECK(episode.end() == EpisodeEnd::submitted);
}

TEST_CASE("the next prompt begins with the exact ids so far, or the run stops") {
  const Fixture f;
  AgentEpisode episode = f.episode();
  episode.begin();
  Tokens apart = f.reply("$", false);
  for (const char* each : {"a", "b"}) apart.push_back(f.tokenizer.encode(each)[0]);
  apart.push_back(f.tokenizer.eos());
  CHECK(as<Run>(episode.replied(Tokens(episode.context()), apart)).command == "ab");
  episode.observed({"x"}, 0);
  Tokens again = f.format.begin("", "fix");  // as if decoded and encoded again: "ab" is one token
  const Tokens merged = f.reply("$ab"), result = f.format.observe(true, {"x"});
  again.insert(again.end(), merged.begin(), merged.end());
  again.insert(again.end(), result.begin(), result.end());
  CHECK_THROWS_AS(episode.replied(again, f.reply(".")), std::logic_error);
  CHECK_THROWS_WITH(episode.replied({}, f.reply(".")), Contains("other tokens"));
  Tokens longer = episode.context();
  longer.push_back(0);
  CHECK_THROWS_AS(episode.replied(longer, f.reply(".")), std::logic_error);
  CHECK(as<Ended>(f.say(episode, ".")).reason == EpisodeEnd::submitted);
}

TEST_CASE("three format errors in a row end the episode, others are noted") {
  const Fixture f;
  AgentEpisode episode = f.episode();
  episode.begin();
  as<Ask>(f.say(episode, "hm"));
  as<Ask>(f.say(episode, "hm"));
  as<Run>(f.say(episode, "$ls"));
  as<Ask>(episode.observed({}, 0));
  as<Ask>(f.say(episode, "hm"));
  CHECK(as<Ended>(f.say(episode, "hm")).reason == EpisodeEnd::turn_limit);
  CHECK(episode.format_errors() == 4);

  AgentEpisode row = f.episode();
  row.begin();
  as<Ask>(f.say(row, "hm"));
  const size_t before = row.context().size();
  as<Ask>(f.say(row, "hm", false));  // a cut reply: its end is read, with no loss
  CHECK(row.context()[before + 2] == f.tokenizer.eos());
  CHECK(row.drawn()[before + 2] == 0);
  CHECK(as<Ended>(f.say(row, "")).reason == EpisodeEnd::format_errors);
  CHECK(row.format_errors() == 3);
  CHECK(row.turns().size() == 3);
}

TEST_CASE("limits: turns, tokens of the episode, time of the commands") {
  Fixture f;
  f.limits.turns = 1;
  AgentEpisode turns = f.episode();
  turns.begin();
  as<Run>(f.say(turns, "$ls"));  // the command of the last turn is still run
  CHECK(as<Ended>(turns.observed({"x"}, 0)).reason == EpisodeEnd::turn_limit);
  CHECK(turns.drawn().back() == 1);  // and nothing is read that nobody answers

  f.limits = {.turns = 5, .tokens = 12, .reply_tokens = 20, .observation_tokens = 30, .seconds = 10};
  AgentEpisode tokens = f.episode();  // "fix<bos>" takes 4 tokens
  CHECK(as<Ask>(tokens.begin()).most_tokens == 8);
  CHECK(as<Ended>(f.say(tokens, "$1234567", false)).reason == EpisodeEnd::token_limit);
  CHECK(tokens.context().size() == 12);
  AgentEpisode result = f.episode();
  result.begin();
  as<Run>(f.say(result, "$ls"));  // 4 more: 4 are left, of which a reply needs one
  CHECK(as<Ended>(result.observed({"abcd"}, 0)).reason == EpisodeEnd::token_limit);
  CHECK(result.context().size() == 8);
  AgentEpisode fits = f.episode();
  fits.begin();
  as<Run>(f.say(fits, "$ls"));
  CHECK(as<Ask>(fits.observed({"ab"}, 0)).most_tokens == 2);  // ab is one token, then <bos>
  AgentEpisode note = f.episode();
  note.begin();
  CHECK(as<Ended>(f.say(note, "123456")).reason == EpisodeEnd::token_limit);
  CHECK(note.format_errors() == 1);
  f.limits.tokens = 4;
  CHECK(as<Ended>(f.episode().begin()).reason == EpisodeEnd::token_limit);

  f.limits.tokens = 100;
  AgentEpisode time = f.episode();
  time.begin();
  as<Run>(f.say(time, "$ls"));
  as<Ask>(time.observed({}, 6.0));
  CHECK(as<Run>(f.say(time, "$ls")).seconds == 4.0);
  CHECK(as<Ended>(time.observed({"", 137, true}, 4.0)).reason == EpisodeEnd::time_limit);
  AgentEpisode clock = f.episode();
  clock.begin();
  as<Run>(f.say(clock, "$ls"));
  CHECK(as<Ended>(clock.observed({}, std::numeric_limits<double>::quiet_NaN())).reason == EpisodeEnd::time_limit);
}

TEST_CASE("an episode that is driven wrongly says so; one may fail at any time, once") {
  const Fixture f;
  AgentEpisode episode = f.episode();
  CHECK_THROWS_AS(f.say(episode, "."), std::logic_error);
  CHECK_THROWS_AS(episode.observed({}, 0), std::logic_error);
  episode.begin();
  CHECK_THROWS_AS(episode.begin(), std::logic_error);
  CHECK_THROWS_AS(episode.observed({}, 0), std::logic_error);
  as<Run>(f.say(episode, "$ls"));
  CHECK_THROWS_AS(f.say(episode, "."), std::logic_error);
  CHECK(as<Ended>(episode.fail()).reason == EpisodeEnd::failed);
  CHECK_THROWS_AS(episode.fail(), std::logic_error);
  CHECK_THROWS_AS(episode.begin(), std::logic_error);
  CHECK(name_of(EpisodeEnd::format_errors) == "format_errors");
}

TEST_CASE("an episode keeps a reply's thinking in the next prompt") {
  const Tokenizer tokenizer({}, true, {"<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>"});
  const ChatFormat format("chatml", tokenizer);
  AgentEpisode episode(format, {}, "", "fix");
  episode.begin();
  Tokens reply{*tokenizer.marker("<think>")};
  for (const int32_t id : tokenizer.encode("long thought")) reply.push_back(id);
  reply.push_back(*tokenizer.marker("</think>"));
  const Tokens call = format.call({ToolCall::Tool::bash, "ls"});
  reply.insert(reply.end(), call.begin(), call.end());
  const Tokens before = episode.context();
  CHECK(as<Run>(episode.replied(before, reply)).command == "ls");
  as<Ask>(episode.observed({"x"}, 0));
  Tokens prefix = before;
  prefix.insert(prefix.end(), reply.begin(), reply.end());
  REQUIRE(episode.context().size() > prefix.size());
  CHECK(std::equal(prefix.begin(), prefix.end(), episode.context().begin()));
}

TEST_CASE("a demonstration is the transcript of an agent that does it, its results really read") {
  const Fixture f;
  std::vector<std::string> run;
  const CommandRunner shell = [&](const std::string& command, double seconds) {
    CHECK(seconds > 0);
    run.push_back(command);
    return CommandResult{{command == "cat f" ? "ab\n" : "", command == "false" ? 1 : 0}, 1.0};
  };
  const Transcript transcript = demonstrate(f.format, f.limits, "", "fix", {"cat f", "false"}, shell);
  CHECK(transcript.end == EpisodeEnd::submitted);
  CHECK(run == std::vector<std::string>{"cat f", "false"});
  CHECK(f.tokenizer.decode(transcript.tokens) == "fix$cat fab$false[1].");
  std::string drawn;
  for (size_t i = 0; i < transcript.tokens.size(); ++i) {
    const std::vector<int32_t> one{transcript.tokens[i]};
    if (transcript.drawn[i]) drawn += one[0] == f.tokenizer.eos() ? "|" : f.tokenizer.decode(one);
  }
  CHECK(drawn == "$cat f|$false|.|");
  // What a limit ends is no example: a reply too long, one turn too few, a command that takes too long.
  AgentLimits limits = f.limits;
  limits.reply_tokens = 6;
  CHECK(demonstrate(f.format, limits, "", "fix", {"cat f", "ls"}, shell).end == EpisodeEnd::token_limit);
  limits = f.limits;
  limits.turns = 2;
  CHECK(demonstrate(f.format, limits, "", "fix", {"cat f", "ls"}, shell).end == EpisodeEnd::turn_limit);
  limits.turns = 3;
  limits.seconds = 1.5;
  CHECK(demonstrate(f.format, limits, "", "fix", {"cat f", "ls"}, shell).end == EpisodeEnd::time_limit);
  limits.tokens = 3;
  CHECK(demonstrate(f.format, limits, "", "fix", {}, shell).end == EpisodeEnd::token_limit);
  CHECK_THROWS_WITH(demonstrate(f.format, f.limits, "", "fix", {"x"},
                                [](const std::string&, double) -> CommandResult { throw TaskError("gone"); }),
                    "gone");
}

}  // namespace motley::envs
