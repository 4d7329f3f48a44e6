// Episodes of several questions: what is asked when, and what the replies are worth together.
#include "envs/episode.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

namespace motley::envs {
namespace {

/// Right is the question's answer; a reply of "throw" throws.
class Matching final : public Task {
 public:
  std::vector<std::string> symbols() const override { return {"a"}; }
  Problem problem(uint64_t, uint64_t, bool) const override { return {}; }
  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  Reward reward(const Problem& problem, std::string_view reply, bool ended) const override {
    if (reply == "throw") throw std::runtime_error("no reward");
    const double right = reply == problem.answer ? 1.0 : 0.0;
    return {reply == "nan" ? std::numeric_limits<double>::quiet_NaN() : right, {{"correct", right}}, !ended};
  }
  bool has_demonstrations() const override { return false; }
};

Problem three() { return {"p", "a", "", {{"q", "b", ""}, {"r", "c", ""}}}; }

TEST_CASE("the next question is asked once the reply before it has ended, and none after the last") {
  const Problem problem = three();
  CHECK(next_question(problem, std::vector<Reply>{{"x", true}}) == &problem.more[0]);
  CHECK(next_question(problem, std::vector<Reply>{{"", true}, {"y", true}}) == &problem.more[1]);
  CHECK(next_question(problem, std::vector<Reply>{{"", true}, {"", true}, {"", true}}) == nullptr);
  CHECK(next_question(problem, std::vector<Reply>{{"x", false}}) == nullptr);
  CHECK(next_question({"p", "a", ""}, std::vector<Reply>{{"a", true}}) == nullptr);
}

TEST_CASE("an episode's reward is the mean over its questions, those never asked as 0, and every turn has its share") {
  const Matching task;
  const auto reward = [&](const std::vector<Reply>& replies) { return episode_reward(task, three(), replies); };
  const Reward all = reward({{"a", true}, {"b", true}, {"c", true}});
  CHECK(all.value == 1.0);
  CHECK(all.turns == std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3});
  CHECK(all.parts == std::map<std::string, double>{{"correct", 1.0}});
  CHECK_FALSE(all.format_error);
  const Reward some = reward({{"b", true}, {"b", true}, {"c", false}});
  CHECK(some.value == 2.0 / 3);
  CHECK(some.turns == std::vector<double>{0.0, 1.0 / 3, 1.0 / 3});
  CHECK(some.format_error);
  const Reward cut = reward({{"a", false}});
  CHECK(cut.value == 1.0 / 3);
  CHECK(cut.turns == std::vector<double>{1.0 / 3});
  CHECK(cut.parts.at("correct") == 1.0 / 3);
  CHECK(std::isnan(reward({{"a", true}, {"nan", true}}).value));
  CHECK_THROWS(reward({{"a", true}, {"throw", true}}));
  // One question is scored as it is.
  const Reward one = episode_reward(task, {"p", "a", ""}, std::vector<Reply>{{"a", true}});
  CHECK(one.value == 1.0);
  CHECK(one.turns.empty());
}

TEST_CASE("arithmetic asks several questions, each from the set that the episode is from") {
  const auto make = [](const char* questions) {
    return find_task("arithmetic")->make({{"digits", "1"}, {"questions", questions}});
  };
  const auto three = make("3"), one = make("1");
  std::set<std::string> training, held_out;
  std::set<std::vector<std::string>> episodes;
  for (uint64_t i = 0; i < 2000; ++i) {
    for (const bool held : {false, true}) {
      const Problem problem = three->problem(7, i, held);
      REQUIRE(problem.more.size() == 2);
      const Problem alone = one->problem(7, i, held);
      CHECK(problem.prompt == alone.prompt);
      CHECK(alone.more.empty());
      auto& seen = held ? held_out : training;
      for (const std::string& prompt : {problem.prompt, problem.more[0].prompt, problem.more[1].prompt})
        seen.insert(prompt);
      if (!held) episodes.insert({problem.prompt, problem.more[0].prompt, problem.more[1].prompt});
      CHECK(three->reward(problem.more[1], problem.more[1].demonstration, true).value == 1.0);
    }
  }
  for (const std::string& prompt : held_out) CHECK(!training.contains(prompt));
  CHECK(training.size() + held_out.size() == 100);
  CHECK(episodes.size() > 1950);  // of some 700,000: the questions of an episode are independent
  CHECK_THROWS_AS(make("0"), TaskError);
}

}  // namespace
}  // namespace motley::envs
