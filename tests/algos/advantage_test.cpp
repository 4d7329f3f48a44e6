// Advantages, reductions, and what makes a trajectory unusable.
#include "algos/advantage.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "algos/reward_shaping.h"
#include "algos/trajectory.h"

namespace motley::algos {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("advantages of a small group by hand") {
  const std::vector<double> rewards{1.0, 0.0, 0.0, 1.0, 1.0};
  const auto dr = advantages("dr_grpo", rewards), grpo = advantages("grpo", rewards),
             rloo = advantages("rloo", rewards), maxrl = advantages("maxrl", rewards);
  const double deviation = std::sqrt((3 * 0.16 + 2 * 0.36) / 4.0);
  for (size_t i = 0; i < rewards.size(); ++i) {
    CHECK(dr[i] == Approx(rewards[i] - 0.6).epsilon(1e-15));
    CHECK(grpo[i] == Approx((rewards[i] - 0.6) / (deviation + 1e-6)).epsilon(1e-14));
    CHECK(rloo[i] == Approx(rewards[i] - (3.0 - rewards[i]) / 4.0).epsilon(1e-15));
    CHECK(maxrl[i] == Approx((rewards[i] - 0.6) / 0.6).epsilon(1e-15));
  }
}

TEST_CASE("equal rewards give exactly 0") {
  for (const std::string& name : advantage_names()) {
    if (!compares_group(name)) continue;
    for (const double reward : {0.1, 0.7, 1.0 / 3.0, -0.3, 0.0}) {
      if (name == "maxrl" && reward < 0.0) continue;
      for (const size_t n : {2u, 3u, 7u, 8u}) {
        CHECK(advantages(name, std::vector<double>(n, reward)) == std::vector<double>(n, 0.0));
      }
    }
  }
}

TEST_CASE("a group of one, or an unknown name, is refused") {
  for (const std::string& name : advantage_names()) {
    if (!compares_group(name)) continue;
    CHECK_THROWS_AS(advantages(name, std::vector<double>{1.0}), std::invalid_argument);
    CHECK_THROWS_AS(advantages(name, std::vector<double>{}), std::invalid_argument);
  }
  CHECK_THROWS_WITH(advantages("drgrpo", std::vector<double>{0, 1}), Contains("nearest: \"dr_grpo\""));
  CHECK_THROWS_WITH(reduction_factors("tokenmean", {}, {}, {}, 1), Contains("nearest: \"token_mean\""));
}

TEST_CASE("reduction factors by hand") {
  const std::vector<int64_t> tokens{1, 2, 3, 10, 0};
  const std::vector<uint64_t> groups{7, 7, 9, 9, 7};
  const auto factors = [&](const char* name) { return reduction_factors(name, tokens, tokens, groups, 20); };
  CHECK(factors("token_mean") == std::vector<double>{1.0 / 16, 1.0 / 16, 1.0 / 16, 1.0 / 16, 0.0});
  CHECK(factors("prompt_mean") == std::vector<double>{1.0 / 6, 1.0 / 6, 1.0 / 26, 1.0 / 26, 0.0});
  CHECK(factors("sequence_mean") == std::vector<double>{1.0 / 4, 1.0 / 8, 1.0 / 12, 1.0 / 40, 0.0});
  CHECK(factors("constant") == std::vector<double>{0.01, 0.01, 0.01, 0.01, 0.0});
  for (const char* name : {"token_mean", "prompt_mean", "sequence_mean"}) {
    const auto f = factors(name);
    double sum = 0.0;
    for (size_t i = 0; i < f.size(); ++i) sum += f[i] * static_cast<double>(tokens[i]);
    CHECK(sum == Approx(1.0).epsilon(1e-15));  // a mean
  }
}

TEST_CASE("reductions over nothing give nothing") {
  for (const std::string& name : reduction_names()) {
    CHECK(reduction_factors(name, {}, {}, {}, 4).empty());
    CHECK(reduction_factors(name, std::vector<int64_t>{0, 0}, std::vector<int64_t>{0, 0}, std::vector<uint64_t>{1, 2},
                            4) == std::vector<double>{0.0, 0.0});
  }
  const std::vector<int64_t> one{1};
  CHECK_THROWS_AS(reduction_factors("constant", one, one, std::vector<uint64_t>{1}, 0), std::invalid_argument);
}

TEST_CASE("denominators that count unmasked tokens alone, by hand") {
  const std::vector<int64_t> tokens{1, 2, 3, 10}, counted{1, 0, 2, 0};
  const std::vector<uint64_t> groups{7, 7, 9, 11};
  const auto factors = [&](const char* name) { return reduction_factors(name, tokens, counted, groups, 20); };
  CHECK(factors("token_mean") == std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0 / 3});
  CHECK(factors("prompt_mean") == std::vector<double>{1.0 / 2, 1.0 / 2, 1.0 / 4, 0.0});
  CHECK(factors("sequence_mean") == std::vector<double>{1.0 / 2, 0.0, 1.0 / 4, 0.0});
  CHECK(factors("constant") == std::vector<double>(4, 1.0 / 80));
  const std::vector<int64_t> none(4, 0);
  CHECK(reduction_factors("token_mean", tokens, none, groups, 20) == std::vector<double>(4, 0.0));
}

TEST_CASE("maxrl weighs a group of one success among n by n, and refuses negative rewards") {
  std::vector<double> rewards(8, 0.0);
  rewards[3] = 1e-9;
  const auto a = advantages("maxrl", rewards);
  CHECK(a[3] == Approx(7.0));
  CHECK(a[0] == Approx(-1.0));
  CHECK_THROWS_WITH(advantages("maxrl", std::vector<double>{1.0, -0.5}), Contains("at least 0") && Contains("-0.5"));
}

TEST_CASE("the moving baseline: the first batch's mean, then an average of those before; its state comes back") {
  CHECK(advantages("reinforce", std::vector<double>{1.0}, 0.25) == std::vector<double>{0.75});
  CHECK(advantages("reinforce", {}, 0.25).empty());
  MovingBaseline baseline(0.75);
  CHECK(baseline.state().empty());
  CHECK(baseline.value(0.5) == 0.5);
  baseline.add(0.5);
  CHECK(baseline.value(1.0) == 0.5);  // the batch itself does not enter
  baseline.add(1.0);
  CHECK(baseline.value(0.0) == 0.625);
  baseline.add(1.0 / 3.0);
  MovingBaseline resumed(0.75);
  resumed.restore(baseline.state());
  CHECK(resumed.value(9.0) == baseline.value(9.0));
  resumed.restore("");
  CHECK(resumed.value(9.0) == 9.0);
  for (const char* text : {"x", "1.0 ", "nan", "inf", "0x1p+99999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(resumed.restore(text), std::invalid_argument);
  }
  CHECK_THROWS_AS(MovingBaseline(1.0), std::invalid_argument);
  CHECK_THROWS_AS(MovingBaseline(-0.1), std::invalid_argument);
}

TEST_CASE("the soft penalty on overlong replies falls linearly over its buffer") {
  for (const int64_t tokens : {0, 1, 12}) CHECK(overlong_penalty(tokens, 16, 4) == 0.0);
  CHECK(overlong_penalty(13, 16, 4) == -0.25);
  CHECK(overlong_penalty(14, 16, 4) == -0.5);
  CHECK(overlong_penalty(16, 16, 4) == -1.0);
  CHECK(overlong_penalty(100, 16, 4) == -1.0);
  CHECK(overlong_penalty(0, 16, 16) == 0.0);
  CHECK(overlong_penalty(8, 16, 16) == -0.5);
  CHECK(!std::signbit(overlong_penalty(3, 16, 4)));
}

Trajectory sound() {
  Trajectory t;
  t.tokens = {4, 1, 2, 5, 3};
  t.loss_mask = {0, 0, 1, 0, 1};
  t.records.tokens = {2, 3};
  t.records.log_q = {-0.5f, -1.0f};
  t.records.versions = {6, 4};
  t.records.offsets = {0, 2, 3};
  t.records.ids = {1, 2, 3};
  t.records.id_log_q = {-0.9f, -0.5f, -1.0f};
  t.records.log_tail = {-HUGE_VALF, -0.7f};
  return t;
}

TEST_CASE("a trajectory whose arrays disagree says what is wrong") {
  REQUIRE(sound().inconsistency(6).empty());
  REQUIRE(sound().oldest_version() == 4);
  REQUIRE(Trajectory().oldest_version() == 0);
  const auto broken = [](auto change) {
    Trajectory t = sound();
    change(t);
    return t.inconsistency(6);
  };
  CHECK_THAT(broken([](auto& t) { t.loss_mask.pop_back(); }), Contains("length"));
  CHECK_THAT(broken([](auto& t) { t.tokens[1] = 6; }), Contains("outside the vocabulary at position 1"));
  CHECK_THAT(broken([](auto& t) { t.tokens[1] = -1; }), Contains("outside the vocabulary"));
  CHECK_THAT(broken([](auto& t) { t.loss_mask[4] = 0; }), Contains("more records"));
  CHECK_THAT(broken([](auto& t) { t.loss_mask[3] = 1; }), Contains("another token at position 3"));
  CHECK_THAT(broken([](auto& t) { t.tokens[4] = 5; }), Contains("another token at position 4"));
  CHECK_THAT(broken([](auto& t) { t.loss_mask[4] = 2; }), Contains("neither 0 nor 1"));
  CHECK_THAT(broken([](auto& t) { t.loss_mask[0] = 1; }), Contains("no prefix"));
  CHECK_THAT(broken([](auto& t) { t.records.ids[1] = 3; }), Contains("candidate set at position 2"));
  CHECK_THAT(broken([](auto& t) { t.records.log_tail.pop_back(); }), Contains("records disagree"));
  CHECK_THAT(broken([](auto& t) { t.temperature = 0.0; }), Contains("temperature"));
  CHECK_THAT(broken([](auto& t) { t.temperature = std::nan(""); }), Contains("temperature"));
  CHECK_THAT(broken([](auto& t) { t.reward = std::nan(""); }), Contains("reward"));
  CHECK(broken([](auto& t) { t.records.ids[2] = 4; }).empty());  // a head with a tail need not hold the drawn token
}

}  // namespace
}  // namespace motley::algos
