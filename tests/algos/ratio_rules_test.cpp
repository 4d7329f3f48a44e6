// Each ratio rule at its edges, by hand: bands, caps, conditions on the sign of the advantage, and what is seen at
// once.
#include <catch2/catch.hpp>

#include "tests/algos/drawn_tokens.h"

namespace motley::algos {
namespace {

using Catch::Matchers::Approx;
using Catch::Matchers::Contains;
using Weights = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const double kLowest = std::exp(-kLogRatioBound), kHighest = std::exp(kLogRatioBound);

TEST_CASE("rules of one token's ratio to the sampler") {
  CHECK(weight_of("grpo", token_of_ratio(7.0), 2.0) == 1.0);
  CHECK(weight_of("token-is", token_of_ratio(7.0), -2.0) == Catch::Detail::Approx(7.0));
  CHECK(weight_of("token-is", {0.0, -50.0, 0.0}, 1.0) == kHighest);
  CHECK(weight_of("token-is", {-kInfinity, -1.0, 0.0}, 1.0) == kLowest);
  CHECK(weight_of("tis", token_of_ratio(7.0), -1.0) == 2.0);
  CHECK(weight_of("tis", token_of_ratio(0.1), 1.0) == Catch::Detail::Approx(0.1));
  CHECK(weight_of("tis", token_of_ratio(0.1), 1.0, {{"tis.low", 0.5}}) == 0.5);
}

TEST_CASE("rules of a response see its product, and no other response") {
  DrawnTokens batch;
  batch.add(1.0, {token_of_ratio(2.0), token_of_ratio(0.5), token_of_ratio(4.0)});  // product 4
  batch.add(-2.0, {token_of_ratio(0.5)});
  const auto expect = [&](const Weights& expected, const std::string& name, const CorrectionParameters& p = {}) {
    CAPTURE(name);
    CHECK_THAT(batch.weights(name, p), Approx(expected).epsilon(1e-14));
  };
  expect({4.0, 4.0, 4.0, 0.5}, "seq-is");
  expect({2.0, 2.0, 2.0, 0.5}, "seq-tis");
  expect({0.0, 0.0, 0.0, 0.5}, "seq-mis");
  expect({4.0, 4.0, 4.0, 0.0}, "seq-mis", {{"seq-mis.low", 0.6}, {"seq-mis.high", 5.0}});
  expect({3.0, 3.0, 3.0, 0.5}, "pg-seq-is");
  expect({0.0, 0.0, 0.0, 0.5}, "pg-seq-is", {{"pg-seq-is.mode", "mask"}});
  expect({4.0, 4.0, 4.0, 0.5}, "pg-seq-is", {{"pg-seq-is.mode", "mask"}, {"pg-seq-is.cap", 4.1}});
  expect({2.0, 1.0, 4.0, 0.5}, "cumulative");
  expect({1.5, 1.0, 1.5, 0.5}, "cumulative", {{"cumulative.cap", 1.5}});
}

TEST_CASE("the log of a product is bounded as a whole, not token by token") {
  DrawnTokens batch;
  batch.add(1.0, {{0.0, -30.0, 0.0}, {-29.0, 0.0, 0.0}});  // e^30 e^-29
  batch.add(1.0, {{0.0, -30.0, 0.0}, {0.0, -30.0, 0.0}});
  CHECK_THAT(batch.weights("seq-is"), Approx(Weights{std::exp(1.0), std::exp(1.0), kHighest, kHighest}).epsilon(1e-12));
  CHECK(batch.weights("seq-mis", {{"seq-mis.high", 1e12}})[2] == 0.0);  // e^60 is outside, bounded or not
}

TEST_CASE("ppo-clip cuts on the side where the advantage pushes outward") {
  const auto weight = [](double u, double a) { return weight_of("ppo-clip", token_of_step(u), a); };
  CHECK(weight(1.0, 1.0) == 1.0);
  CHECK(weight(1.1, 1.0) == Catch::Detail::Approx(1.1));
  CHECK(weight(1.21, 1.0) == 0.0);
  CHECK(weight(1.21, -1.0) == Catch::Detail::Approx(1.21));
  CHECK(weight(0.79, -1.0) == 0.0);
  CHECK(weight(0.79, 1.0) == Catch::Detail::Approx(0.79));
  CHECK(weight(2.9, -1.0) == Catch::Detail::Approx(2.9));
  CHECK(weight(3.1, -1.0) == 0.0);  // the dual clip
  CHECK(weight_of("ppo-clip", token_of_step(3.1), -1.0, {{"ppo-clip.dual", kInfinity}}) == Catch::Detail::Approx(3.1));
  CHECK(weight_of("ppo-clip", {-0.5, -9.0, -kInfinity}, 1.0) == 0.0);
  CHECK(weight_of("ppo-clip", {-0.5, -9.0, -kInfinity}, -1.0) == 0.0);
  // Both edges belong to the band.
  const volatile double width =
      0.2;  // log1p at run time, as the rule calls it: a compiler's may differ in the last bit
  const double high = std::log1p(width);
  CHECK(weight_of("ppo-clip", {high, 0.0, 0.0}, 1.0) == std::exp(high));
  CHECK(weight_of("ppo-clip", {std::nextafter(high, 1.0), 0.0, 0.0}, 1.0) == 0.0);
  // Against the sampler.
  CHECK(weight_of("ppo-clip", {high, 0.0, 5.0}, 1.0, {{"ppo-clip.anchor", "sampler"}}) == std::exp(high));
  CHECK(weight_of("ppo-clip", {high + 0.1, 0.0, 5.0}, 1.0, {{"ppo-clip.anchor", "sampler"}}) == 0.0);
}

TEST_CASE("gspo clips the geometric mean of a response") {
  const auto weights = [](double mean_log_u, double a) {
    return DrawnTokens().add(a, {{-1.0, -1.0, -1.0 - 2.0 * mean_log_u}, {-1.0, -3.0, -1.0}}).weights("gspo");
  };
  const double out = 5e-4, in = 3.5e-4;
  CHECK(weights(out, 1.0) == Weights{0.0, 0.0});
  CHECK_THAT(weights(out, -1.0), Approx(Weights{std::exp(out), std::exp(out)}));
  CHECK_THAT(weights(in, 1.0), Approx(Weights{std::exp(in), std::exp(in)}));
  CHECK(weights(-in, -1.0) == Weights{0.0, 0.0});  // below 1 - 3e-4
  CHECK_THAT(weights(-in, 1.0), Approx(Weights{std::exp(-in), std::exp(-in)}));
}

TEST_CASE("cispo bounds the weight and keeps every gradient") {
  CHECK(weight_of("cispo", token_of_step(7.0), 1.0) == 5.0);
  CHECK(weight_of("cispo", token_of_step(7.0), -1.0) == 5.0);
  CHECK(weight_of("cispo", token_of_step(0.01), -1.0) == Catch::Detail::Approx(0.01));
  CHECK(weight_of("cispo", token_of_ratio(7.0), 1.0) == 1.0);
  CHECK(weight_of("cispo", token_of_ratio(7.0), 1.0, {{"cispo.anchor", "sampler"}}) == 5.0);
}

TEST_CASE("dppo bounds a divergence, not the ratio, and only where the update moves away") {
  const auto tv = [](double p, double q, double a) { return weight_of("dppo-tv", {std::log(p), std::log(q), 0.0}, a); };
  CHECK(tv(0.35, 0.1, 1.0) == 0.0);
  CHECK(tv(0.35, 0.1, -1.0) == Catch::Detail::Approx(3.5));
  CHECK(tv(0.1, 0.35, -1.0) == 0.0);
  CHECK(tv(0.1, 0.35, 1.0) == Catch::Detail::Approx(0.1 / 0.35));
  CHECK(tv(0.29, 0.1, 1.0) == Catch::Detail::Approx(2.9));  // |p - q| = 0.19
  CHECK(tv(1e-3, 1e-5, 1.0) == 5.0);                        // a rare token may move by much
  CHECK(tv(0.0, 0.3, -1.0) == 0.0);
  CHECK(tv(0.0, 0.1, -1.0) == kLowest);

  const auto kl = [](double p, double q, double a, double delta) {
    return weight_of("dppo-kl", {std::log(p), std::log(q), 0.0}, a, {{"dppo-kl.delta", delta}});
  };
  const double d = 0.5 * std::log(0.5 / 0.7) + 0.5 * std::log(0.5 / 0.3);
  CHECK(kl(0.7, 0.5, 1.0, 0.99 * d) == 0.0);
  CHECK(kl(0.7, 0.5, 1.0, 1.01 * d) == Catch::Detail::Approx(1.4));
  CHECK(kl(0.7, 0.5, -1.0, 0.01 * d) == Catch::Detail::Approx(1.4));
  CHECK(kl(1.0, 0.5, 1.0, 1e6) == 0.0);                          // infinitely far
  CHECK(kl(0.5, 1.0, -1.0, 0.7) == Catch::Detail::Approx(0.5));  // log 2
  CHECK(kl(0.5, 1.0, -1.0, 0.69) == 0.0);
}

TEST_CASE("minirl weights by the sampler's ratio and masks by the step's") {
  const auto weight = [](double u, double a) { return weight_of("minirl", {-1.0, -2.0, -1.0 - std::log(u)}, a); };
  CHECK(weight(1.0, 1.0) == Catch::Detail::Approx(std::exp(1.0)));
  CHECK(weight(1.26, 1.0) == Catch::Detail::Approx(std::exp(1.0)));
  CHECK(weight(1.28, 1.0) == 0.0);
  CHECK(weight(1.28, -1.0) == Catch::Detail::Approx(std::exp(1.0)));
  CHECK(weight(0.79, -1.0) == 0.0);
}

TEST_CASE("m2po masks the largest moments of the whole step, in any order of the tokens") {
  // (log r)^2: 0.01, 0.09, 0.0001, 0.25; kept means 0.0001, 0.00505, 0.0334, 0.0875
  const std::vector<LogProbs> tokens{{0.1, 0.0, 0.0}, {-0.3, 0.0, 0.0}, {0.01, 0.0, 0.0}, {-0.5, 0.0, 0.0}};
  DrawnTokens batch;
  batch.add(1.0, {tokens[0], tokens[2]}).add(-1.0, {tokens[1], tokens[3]});
  CHECK_THAT(batch.weights("m2po"), Approx(Weights{std::exp(0.1), std::exp(0.01), std::exp(-0.3), 0.0}));
  CHECK(batch.coefficients("m2po").masked == std::vector<uint8_t>{0, 0, 0, 1});
  CHECK_THAT(batch.weights("m2po", {{"m2po.threshold", 0.01}}),
             Approx(Weights{std::exp(0.1), std::exp(0.01), 0.0, 0.0}));
  CHECK(batch.coefficients("m2po", {{"m2po.threshold", 0.1}}).masked == std::vector<uint8_t>{0, 0, 0, 0});
  CHECK(batch.coefficients("m2po", {{"m2po.threshold", 5e-5}}).masked == std::vector<uint8_t>{1, 1, 1, 1});
  // Equal moments at the cut go together.
  DrawnTokens equal;
  equal.add(1.0, {{0.3, 0.0, 0.0}, {1e-9, 0.0, 0.0}}).add(-1.0, {{-0.3, 0.0, 0.0}});
  CHECK(equal.coefficients("m2po", {{"m2po.threshold", 0.05}}).masked == std::vector<uint8_t>{1, 0, 1});
  CHECK(weight_of("m2po", {-kInfinity, -1.0, 0.0}, -1.0) == 0.0);
}

TEST_CASE("m2po looks at tokens alone whose update leads away from the sampler") {
  // One that leads away, by 0.25; among a thousand others it would be below any mean.
  DrawnTokens batch;
  batch.add(1.0, {{0.5, 0.0, 0.0}}).add(0.0, {{0.5, 0.0, 0.0}, {-9.0, 0.0, 0.0}});
  for (int i = 0; i < 1000; ++i) batch.add(1.0, {{-0.01, 0.0, 0.0}});
  batch.add(1.0, {{-3.0, 0.0, 0.0}}).add(-1.0, {{3.0, 0.0, 0.0}}).add(1.0, {{0.0, 0.0, 0.0}});
  const Coefficients out = batch.coefficients("m2po");
  CHECK(out.masked.front() == 1);
  CHECK(std::count(out.masked.begin(), out.masked.end(), 1) == 1);
  CHECK(weight_of("m2po", {-kInfinity, -1.0, 0.0}, 1.0) == kLowest);
}

TEST_CASE("ais mixes by the step's own diagnostics") {
  const DrawnTokens same = DrawnTokens().add(1.0, {token_of_ratio(1.0), token_of_ratio(1.0)});
  CHECK(same.weights("ais") == Weights{1.0, 1.0});
  CHECK(same.coefficients("ais").samples.at("ais/mixing") == Weights{0.0});
  DrawnTokens batch;
  batch.add(1.0, {token_of_ratio(4.0), token_of_ratio(0.5)}).add(0.0, {token_of_ratio(1.0)});
  // Capped weights 2, 0.5, 1: sum 3.5, squares 5.25; k3 is far above the default 0.01.
  const double mixing = 3.5 * 3.5 / (3.0 * 5.25) / (5.25 / 3.0);
  CHECK_THAT(batch.weights("ais"), Approx(Weights{1.0 + mixing, 1.0 - 0.5 * mixing, 0.0}).margin(1e-15));
  const double k3 = (4.0 - 1.0 - std::log(4.0) + 0.5 - 1.0 - std::log(0.5)) / 3.0;
  CHECK(batch.coefficients("ais", {{"ais.kl", 10.0}}).samples.at("ais/mixing")[0] ==
        Catch::Detail::Approx(mixing * k3 / 10.0));
}

TEST_CASE("decoupled: the proximal policy's weight times a clip around it") {
  // k = pi_old / q = e^0.5, u = p / pi_old = e^0.1
  const LogProbs token{-0.4, -1.0, -0.5};
  const auto weight = [&](double a, const CorrectionParameters& p) { return weight_of("decoupled", token, a, p); };
  CHECK(weight(1.0, {}) == Catch::Detail::Approx(std::exp(0.6)));
  CHECK(weight(1.0, {{"decoupled.clip_high", 0.1}}) == 0.0);
  CHECK(weight(-1.0, {{"decoupled.clip_high", 0.1}}) == Catch::Detail::Approx(std::exp(0.6)));
  CHECK(weight(1.0, {{"decoupled.high", 1.5}}) == 0.0);
  CHECK(weight(1.0, {{"decoupled.high", 1.5}, {"decoupled.weight", "truncate"}}) ==
        Catch::Detail::Approx(1.5 * std::exp(0.1)));
  CHECK(weight(1.0, {{"decoupled.low", 2.0}, {"decoupled.weight", "truncate"}}) ==
        Catch::Detail::Approx(2.0 * std::exp(0.1)));
  CHECK(weight(1.0, {{"decoupled.high", 1.5}, {"decoupled.weight", "none"}}) == Catch::Detail::Approx(std::exp(0.1)));
  // The product over the response, each token clipped by its own u.
  DrawnTokens two = DrawnTokens().add(1.0, {token, {-1.0, -1.0, -1.5}});
  CHECK_THAT(two.weights("decoupled", {{"decoupled.level", "sequence"}}), Approx(Weights{std::exp(0.1), 0.0}));
}

TEST_CASE("decoupled interpolates the proximal policy by weight version") {
  const CorrectionParameters loglinear{{"decoupled.proximal", "loglinear"}, {"decoupled.clip_high", 0.5}};
  const auto weights = [&](int64_t lag, int64_t step, double high) {
    DrawnTokens batch;
    batch.add(1.0, {{-0.5, -1.0, 7.0}}, 0, lag);
    batch.steps_since_old = step;
    batch.steps_per_batch = 2;
    CorrectionParameters parameters = loglinear;
    parameters["decoupled.high"] = high;
    return batch.weights("decoupled", parameters).front();
  };
  CHECK(weights(2, 0, 5.0) == Catch::Detail::Approx(std::exp(0.5)));  // the first step: proximal is p
  // Lag 2 at the start, 2.5 now: log k = 0.8 * 0.5, log u = 0.1.
  CHECK(weights(2, 1, std::exp(0.41)) == Catch::Detail::Approx(std::exp(0.5)));
  CHECK(weights(2, 1, std::exp(0.39)) == 0.0);
  CHECK(weights(0, 1, 5.0) == 0.0);  // proximal is q: u = e^0.5 is above 1.5
  CHECK(weights(0, 0, 5.0) == Catch::Detail::Approx(std::exp(0.5)));
}

TEST_CASE("a rule that needs pi_old says so when it is missing") {
  const DrawnTokens batch = DrawnTokens().add(1.0, {token_of_ratio(1.0)});
  CorrectionBatch view = batch.view();
  view.log_p_old = {};
  Coefficients out(view);
  CHECK_THROWS_WITH(make_correction("gspo")->coefficients(view, out), Contains("at the start of the batch"));
  CHECK_NOTHROW(make_correction("mis")->coefficients(view, out));
}

}  // namespace
}  // namespace motley::algos
