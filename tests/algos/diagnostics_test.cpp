// Diagnostics from per-token scores, by hand, and in parts.
#include "algos/diagnostics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"

namespace motley::algos {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
const RatioInterval kBand(0.5, 5.0);

/// Tokens of these log r, with log q = -1.
Metrics metrics_of(const std::vector<double>& log_ratios) {
  Diagnostics sums;
  for (const double x : log_ratios) sums.add({.log_p = x - 1.0, .log_q = -1.0}, kBand);
  Metrics metrics;
  sums.write(metrics, "");
  return metrics;
}
/// Of log q = 0, so that log r is `x` itself.
Metrics exact_metrics_of(const std::vector<double>& log_ratios) {
  Diagnostics sums;
  for (const double x : log_ratios) sums.add({.log_p = x, .log_q = 0.0}, kBand);
  Metrics metrics;
  sums.write(metrics, "");
  return metrics;
}

TEST_CASE("equal log-probabilities give exactly 0 and exactly 1") {
  const Metrics m = metrics_of(std::vector<double>(7, 0.0));
  for (const char* zero : {"kl/sampler_trainer", "kl/trainer_sampler", "kl/k3", "ratio/chi2", "ratio/outside",
                           "ratio/outside_band", "p_minus_q/mean", "p_minus_q/min", "p_minus_q/max"}) {
    CAPTURE(zero);
    CHECK(m.at(zero) == 0.0);
    CHECK(!std::signbit(m.at(zero)));
  }
  CHECK(m.at("ratio/max") == 1.0);
  CHECK(m.at("ess") == 1.0);
  CHECK(m.at("ess_in_band") == 1.0);
}

TEST_CASE("diagnostics by hand") {
  const std::vector<double> r{2.0, 0.6, 6.0, 0.1, 1.0};
  std::vector<double> x;
  double reverse = 0, p_minus_q = 0;
  for (const double ratio : r) {
    x.push_back(std::log(ratio));
    reverse += ratio * std::log(ratio) - ratio + 1.0;
    p_minus_q += (ratio - 1.0) * std::exp(-1.0);
  }
  const Metrics m = metrics_of(x);
  const std::map<std::string, double> expected{
      {"tokens", 5},
      {"kl/sampler_trainer", -std::log(0.72) / 5},
      {"kl/trainer_sampler", reverse / 5},
      {"kl/k3", (9.7 - 5.0 - std::log(0.72)) / 5},
      {"ratio/outside", 0.4},
      {"ratio/outside_band", 0.4},
      {"ratio/max", 6},
      {"ratio/chi2", 41.37 / 5 - 1},
      {"ess", 9.7 * 9.7 / (5 * 41.37)},
      {"ess_in_band", 3.6 * 3.6 / (5 * 5.36)},
      {"p_minus_q/mean", p_minus_q / 5},
      {"p_minus_q/min", -0.9 * std::exp(-1.0)},
      {"p_minus_q/max", 5 * std::exp(-1.0)},
  };
  for (const auto& [name, value] : expected) {
    CAPTURE(name);
    REQUIRE(m.contains(name));
    CHECK(m.at(name) == Approx(value));
  }
  CHECK(!m.contains("log_ppl_gap"));  // no sample was closed
  CHECK(!m.contains("mass/sampler_tail"));
}

TEST_CASE("estimators agree with the divergences when every token is counted by its probability") {
  const std::vector<double> q{0.5, 0.25, 0.125, 0.125}, p{0.125, 0.5, 0.25, 0.125};
  Diagnostics sums;
  double forward = 0, backward = 0, chi2 = 0;
  for (size_t v = 0; v < q.size(); ++v) {
    for (int times = 0; times < static_cast<int>(q[v] * 8); ++times)
      sums.add({.log_p = std::log(p[v]), .log_q = std::log(q[v])}, kBand);
    forward += q[v] * std::log(q[v] / p[v]);
    backward += p[v] * std::log(p[v] / q[v]);
    chi2 += p[v] * p[v] / q[v];
  }
  Metrics m;
  sums.write(m, "x/");
  CHECK(m.at("x/kl/sampler_trainer") == Approx(forward));
  CHECK(m.at("x/kl/k3") == Approx(forward));
  CHECK(m.at("x/kl/trainer_sampler") == Approx(backward));
  CHECK(m.at("x/ratio/chi2") == Approx(chi2 - 1));
  CHECK(m.at("x/ess") == Approx(1 / chi2));
}

TEST_CASE("the second order keeps its digits near a ratio of 1") {
  // r - 1 - log r = x^2 / 2 + x^3 / 6; computed as exp(x) - 1 - x it would be of order 1e-16, not 5e-19. expm1(x) - x
  // errs by 1e-16 x. r log r - (r - 1) = x^2 / 2 + x^3 / 3.
  const double x = 1e-9, y = 1e-4;
  CHECK(exact_metrics_of({x}).at("kl/k3") == Approx(x * x / 2).epsilon(1e-6));
  CHECK(exact_metrics_of({x}).at("kl/trainer_sampler") == Approx(x * x / 2).epsilon(1e-6));
  CHECK(exact_metrics_of({y}).at("kl/k3") == Approx(y * y / 2 + y * y * y / 6).epsilon(1e-7));
  CHECK(exact_metrics_of({y}).at("kl/trainer_sampler") == Approx(y * y / 2 + y * y * y / 3).epsilon(1e-7));
  // sum r^2 - N without rounding the sum first: 2 y + ...
  CHECK(exact_metrics_of({0x1p-40, 0.0, 0.0}).at("ratio/chi2") == Approx(0x1p-39 / 3).epsilon(1e-3));
}

TEST_CASE("true extremes are reported, and stay finite") {
  const Metrics m = exact_metrics_of({100.0, 0.0, -100.0});
  CHECK(m.at("ratio/max") == std::exp(100.0));
  CHECK(m.at("kl/k3") == Approx(std::exp(100.0) / 3.0));
  CHECK(m.at("kl/sampler_trainer") == 0.0);
  CHECK(m.at("ess") == Approx(1.0 / 3.0));
  CHECK(m.at("ess_in_band") == Approx(1.0 / 3.0));
  CHECK(m.at("ratio/outside") == Approx(2.0 / 3.0));
  const Metrics huge = exact_metrics_of({2000.0, -3000.0});
  for (const char* name : {"ratio/max", "kl/k3", "kl/trainer_sampler", "ratio/chi2"}) {
    CAPTURE(name);
    CHECK(huge.at(name) == kLargest);
  }
  CHECK(huge.at("ess") == Approx(0.5));
  CHECK(huge.at("ess_in_band") == 0.0);
  CHECK(exact_metrics_of({2000.0, 2000.0, -1e30}).at("ess") == Approx(2.0 / 3.0));
}

TEST_CASE("a token that the trainer rules out, and one that is no number") {
  const Metrics none = metrics_of({-kInfinity, 0.0});
  CHECK(none.at("kl/sampler_trainer") == kLargest);
  CHECK(none.at("kl/k3") == kLargest);
  CHECK(none.at("kl/trainer_sampler") == 0.5);  // r log r - (r - 1) = 1 at r = 0
  CHECK(none.at("ess") == 0.5);
  CHECK(none.at("p_minus_q/min") == -std::exp(-1.0));
  CHECK(none.at("ratio/outside") == 0.5);
  const Metrics broken = metrics_of({std::nan(""), 0.0});
  CHECK(std::isnan(broken.at("kl/sampler_trainer")));
  CHECK(broken.at("ratio/outside") == 0.5);
  CHECK(broken.at("ratio/max") == 1.0);
  Metrics empty;
  Diagnostics nothing;
  nothing.close_sample();
  nothing.write(empty, "");
  CHECK(empty.empty());
}

TEST_CASE("parts add up to the same bits in every split and order") {
  kernels::RandomStream random({3, kernels::Purpose::data, 0, 0});
  const auto uniform = [&] { return static_cast<double>(random.below(1u << 24)) * 0x1p-24; };
  std::vector<TokenScore> tokens(240);
  for (TokenScore& token : tokens) {
    token.log_q = -4.0 * uniform();
    token.log_p = token.log_q + 3.0 * uniform() - 1.5;
    token.entropy = uniform();
    token.masked = random.below(5) == 0;
    token.has_tail = random.below(3) > 0;
    token.log_q_tail = -7.0 * uniform();
    token.log_p_tail = -7.0 * uniform();
  }
  tokens[17].log_p = 700.0;  // swallows everything else in a plain sum
  tokens[200].log_p = -800.0;
  const auto summed = [&](size_t parts, bool backwards) {
    std::vector<Diagnostics> sums(parts);
    for (size_t i = 0; i < tokens.size(); ++i) sums[i % parts].add(tokens[i], kBand);
    if (backwards) std::reverse(sums.begin(), sums.end());
    Diagnostics total;
    for (const Diagnostics& part : sums) total += part;
    total.close_sample();
    Metrics metrics;
    total.write(metrics, "");
    return metrics;
  };
  Diagnostics together;
  for (const TokenScore& token : tokens) together.add(token, kBand);
  together.close_sample();
  Metrics whole;
  together.write(whole, "");
  CHECK(whole.size() == 22);
  for (const size_t parts : {1u, 2u, 3u, 16u, 240u}) {
    CAPTURE(parts);
    CHECK(summed(parts, false) == whole);
    CHECK(summed(parts, true) == whole);
  }
}

}  // namespace
}  // namespace motley::algos
