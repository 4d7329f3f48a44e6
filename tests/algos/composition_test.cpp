// Sums of pieces: filters, centering beside them, sampler groups of their own, and NaN that stays where it is.
#include <catch2/catch.hpp>

#include "tests/algos/drawn_tokens.h"
#include "tests/algos/token_cases.h"

namespace motley::algos {
namespace {

using Catch::Matchers::Approx;
using reference::kInfinity;
using Weights = std::vector<double>;
const double kNan = std::nan("");

TEST_CASE("filters look at the sampler, not at the trainer's own past") {
  // p = pi_old, the sampler is elsewhere: what a filter fed with pi_old / p would never see.
  const LogProbs moved{-1.0, -1.2, -1.0}, still{-1.0, -1.0, -5.0}, lost{-12.0, -1.0, -12.0};
  DrawnTokens batch;
  batch.add(1.0, {moved, moved}).add(1.0, {still}).add(1.0, {still, lost}).add(-1.0, {still, lost});
  CHECK(batch.weights("geo-mask") == Weights{0, 0, 1, 0, 0, 0, 0});
  CHECK(batch.weights("geo-mask", {{"geo-mask.high", 1.3}}) == Weights{1, 1, 1, 0, 0, 0, 0});
  CHECK(batch.weights("veto") == Weights{1, 1, 1, 0, 0, 0, 0});
  CHECK(batch.weights("opsm") == Weights{1, 1, 1, 1, 1, 0, 0});  // never one with A > 0
  CHECK(batch.weights("opsm", {{"opsm.delta", 5.5}}) == Weights{1, 1, 1, 1, 1, 1, 1});
  CHECK(batch.coefficients("veto").masked == std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("the edges of a filter's band belong to it") {
  const double high = std::log(1.01), low = std::log(0.99);
  CHECK(weight_of("geo-mask", {high, 0.0, 0.0}, 1.0) == 1.0);
  CHECK(weight_of("geo-mask", {std::nextafter(high, 1.0), 0.0, 0.0}, 1.0) == 0.0);
  CHECK(weight_of("geo-mask", {low, 0.0, 0.0}, 1.0) == 1.0);
  CHECK(weight_of("geo-mask", {std::nextafter(low, -1.0), 0.0, 0.0}, 1.0) == 0.0);
  CHECK(weight_of("veto", {std::log(1e-4), 0.0, 0.0}, 1.0) == 1.0);
  CHECK(weight_of("veto", {std::nextafter(std::log(1e-4), -20.0), 0.0, 0.0}, 1.0) == 0.0);
  CHECK(weight_of("veto", {-kInfinity, 0.0, 0.0}, 1.0) == 0.0);
}

TEST_CASE("a filter takes the whole sequence out, and the rule weighs the others as if it were not there") {
  DrawnTokens batch;
  batch.add(1.0, {token_of_ratio(3.0), token_of_ratio(1.1)}).add(1.0, {token_of_ratio(1e-6), token_of_ratio(1.0)});
  CHECK_THAT(batch.weights("tis+veto"), Approx(Weights{2.0, 1.1, 0.0, 0.0}));
  CHECK(batch.weights("tis+veto") == batch.weights("veto+tis"));
  CHECK_THAT(batch.weights("cumulative+veto"), Approx(Weights{3.0, 3.3, 0.0, 0.0}));
  // Batch scope: the dropped sequence's (log r)^2 of 190 would have masked more.
  const DrawnTokens alone = DrawnTokens().add(1.0, {token_of_ratio(3.0), token_of_ratio(1.1)});
  Weights expected = alone.weights("ais");
  expected.insert(expected.end(), {0.0, 0.0});
  CHECK(batch.weights("ais+veto") == expected);
}

TEST_CASE("a dropped sequence has no centering term either") {
  kernels::RandomStream random({31, kernels::Purpose::data, 0, 0});
  OwnedBatch batch;
  for (int t = 0; t < 6; ++t) {
    reference::Token token = random_token(random, 12, "full", 0.5);
    token.advantage = 1.0;
    batch.append(token);
  }
  batch.sequence = {0, 0, 0, 1, 1, 1};
  batch.log_p[static_cast<size_t>(batch.sampled[4])] = -60.0;  // vetoed
  const Coefficients all = batch.coefficients(*make_correction("sc+tis"));
  const Coefficients kept = batch.coefficients(*make_correction("sc+tis+veto"));
  const auto cut = static_cast<size_t>(batch.offsets[3]);
  for (size_t k = 0; k < all.b.size(); ++k) CHECK(kept.b[k] == (k < cut ? all.b[k] : 0.0));
  CHECK(std::any_of(all.b.begin() + static_cast<int64_t>(cut), all.b.end(), [](double b) { return b != 0.0; }));
}

TEST_CASE("NaN never leaves its sequence, and without an advantage it is not there") {
  for (const CorrectionInfo& info : corrections()) {
    CAPTURE(info.name);
    DrawnTokens clean, mixed;
    for (DrawnTokens* batch : {&clean, &mixed}) {
      batch->add(1.0, {token_of_ratio(1.005), token_of_ratio(0.999)}).add(-1.0, {token_of_ratio(1.0)});
    }
    mixed.add(1.0, {token_of_ratio(1.0), {kNan, -1.0, -1.0}}).add(0.0, {{kNan, kNan, kNan}, {-1.0, kNan, -1.0}});
    const Weights weights = mixed.weights(info.name), expected = clean.weights(info.name);
    for (const double w : weights) CHECK(std::isfinite(w));
    for (size_t t = 0; t < expected.size(); ++t) CHECK(weights[t] == expected[t]);
    CHECK(weights[5] == 0.0);
    CHECK(weights[6] == 0.0);
  }
  // Inside a sequence of two turns: the turn without an advantage may hold NaN.
  DrawnTokens turns = DrawnTokens().add(1.0, {token_of_ratio(3.0), {kNan, kNan, kNan}, token_of_ratio(2.0)});
  turns.advantage[1] = 0.0;
  CHECK_THAT(turns.weights("seq-is"), Approx(Weights{6.0, 0.0, 6.0}));
  CHECK(turns.weights("geo-mask", {{"geo-mask.high", 2.4}}) == Weights{0.0, 0.0, 0.0});  // sqrt 6, not the cube root
}

TEST_CASE("infinite and zero ratios give finite coefficients under every piece") {
  const Weights logs{-kInfinity, -700.0, -1.0, 0.0};
  for (const CorrectionInfo& info : corrections()) {
    for (const double p : logs) {
      for (const double q : logs) {
        for (const double old : logs) {
          for (const double a : {1.0, -1.0}) {
            const Weights w = DrawnTokens().add(a, {{p, q, old}, {-1.0, -1.0, -1.0}}).weights(info.name);
            CAPTURE(info.name, p, q, old, a);
            REQUIRE((std::isfinite(w[0]) && std::isfinite(w[1])));
          }
        }
      }
    }
  }
}

TEST_CASE("an empty batch gives nothing") {
  for (const CorrectionInfo& info : corrections()) CHECK(DrawnTokens().coefficients(info.name).b.empty());
}

TEST_CASE("a sampler group can have a band of its own") {
  DrawnTokens batch;
  batch.add(1.0, {token_of_ratio(4.0)}, 0).add(1.0, {token_of_ratio(4.0)}, 1);
  CHECK_THAT(batch.weights("mis", {{"mis.high@b", 3.0}}), Approx(Weights{4.0, 0.0}));
  CHECK_THAT(batch.weights("mis", {{"mis.high@b", 6.0}, {"mis.high", 3.0}}), Approx(Weights{0.0, 4.0}));
  CHECK_THAT(batch.weights("seq-tis", {{"seq-tis.cap@a", 3.0}}), Approx(Weights{3.0, 2.0}));
  CHECK_THAT(batch.weights("veto", {{"veto.low@a", 5.0}}), Approx(Weights{0.0, 1.0}));
  CHECK_THAT(batch.weights("mis", {{"mis.high@other", 3.0}}), Approx(Weights{4.0, 4.0}));
  batch.group.clear();
  CHECK_THAT(batch.weights("mis", {{"mis.high@b", 3.0}}), Approx(Weights{4.0, 4.0}));
}

TEST_CASE("the tail of score centering can be modelled, left out, or guarded") {
  const auto coefficient = [](double rho, const CorrectionParameters& parameters) {
    OwnedBatch batch = single(std::log(0.5), std::log(0.5), 1.0);
    batch.log_p_tail = {std::log(0.1)};
    batch.log_q_tail = {std::log(0.1 * rho)};
    return batch.coefficients(*make_correction("sc", parameters)).b[0] + 1.0;  // q - alpha p
  };
  CHECK(coefficient(3.0, {}) == Catch::Detail::Approx(0.5 - 3.0 * 0.5));
  CHECK(coefficient(3.0, {{"sc.tail", "off"}}) == Catch::Detail::Approx(0.5));
  CHECK(coefficient(3.0, {{"sc.tail", "guard"}}) == Catch::Detail::Approx(0.5));
  CHECK(coefficient(1.9, {{"sc.tail", "guard"}}) == Catch::Detail::Approx(0.5 - 1.9 * 0.5));
  CHECK(coefficient(0.19, {{"sc.tail", "guard"}}) == Catch::Detail::Approx(0.5));
  CHECK(coefficient(3.0, {{"sc.tail", "guard"}, {"sc.guard_high", 4.0}}) == Catch::Detail::Approx(0.5 - 1.5));
}

TEST_CASE("with untruncated importance sampling the centering term is exactly 0 under a tail") {
  kernels::RandomStream random({32, kernels::Purpose::data, 0, 0});
  for (int pair = 0; pair < 50; ++pair) {
    reference::Token token = random_token(random, 12, "top_k", 1.0);
    OwnedBatch batch;
    batch.append(token);
    CHECK(batch.coefficients(*make_correction("sc+token-is")).b == batch.coefficients(*make_correction("token-is")).b);
  }
}

}  // namespace
}  // namespace motley::algos
