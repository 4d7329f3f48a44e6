// Means, slopes and their intervals on data made for the purpose.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "algos/mismatch/fit.h"
#include "kernels/philox.h"

namespace motley::algos::mismatch {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Data {
  std::vector<double> values;
  std::vector<int64_t> offsets{0};
  TokenValues all() const { return {values, offsets}; }
  void end_response() { offsets.push_back(static_cast<int64_t>(values.size())); }
};

/// Nearly normal: a sum of twelve uniforms.
double noise(kernels::RandomStream& stream) {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += stream.uniform();
  return sum;
}

/// gap(t) = base + slope t + (of the response: normal * shared) + (of the token: normal * own).
Data made(uint64_t seed, int responses, int length, double base, double slope, double shared, double own) {
  kernels::RandomStream stream({seed, kernels::Purpose::data, 1});
  Data data;
  for (int i = 0; i < responses; ++i) {
    const double of_response = shared * noise(stream);
    for (int t = 0; t < length + i % 5; ++t)
      data.values.push_back(base + slope * t + of_response + own * noise(stream));
    data.end_response();
  }
  return data;
}

}  // namespace

TEST_CASE("slopes without noise are exact", "[mismatch]") {
  const Data flat = made(1, 6, 40, 0.003, 0.0, 0.0, 0.0);
  CHECK(running_slope(flat.all()).value == Approx(0.003).epsilon(1e-12));
  CHECK(std::abs(position_slope(flat.all()).value) < 1e-15);
  const Data rising = made(1, 6, 40, 0.5, -0.002, 0.0, 0.0);
  const Interval slope = position_slope(rising.all());
  CHECK(slope.value == Approx(-0.002).epsilon(1e-10));
  CHECK(slope.high - slope.low < 1e-12);
  CHECK(token_mean(flat.all()).value == Approx(0.003).epsilon(1e-12));
  CHECK(response_mean(flat.all()).value == Approx(0.003 * (6 * 40 + 0 + 1 + 2 + 3 + 4) / 6).epsilon(1e-12));
}

TEST_CASE("95 % intervals hold the truth in about 95 % of trials, with errors shared inside responses", "[mismatch]") {
  constexpr int kTrials = 400;
  int running = 0, position = 0, mean = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const Data level = made(seed, 20, 15, 0.001, 0.0, 0.002, 0.01);
    const Interval of_sum = running_slope(level.all());
    if (of_sum.low <= 0.001 && 0.001 <= of_sum.high) ++running;
    const Estimate of_mean = token_mean(level.all());
    if (std::abs(of_mean.value - 0.001) <= student_quantile(19) * of_mean.error) ++mean;
    const Interval change = position_slope(made(seed, 20, 15, 0.0, 0.0004, 0.002, 0.01).all());
    if (change.low <= 0.0004 && 0.0004 <= change.high) ++position;
  }
  // A binomial of 400 at 0.95 has a standard deviation of 4.4; few clusters cost some coverage.
  for (const int held : {running, position, mean}) {
    CHECK(held >= 362);
    CHECK(held <= 396);
  }
}

TEST_CASE("a cluster is a response: repeating its tokens makes no interval narrower", "[mismatch]") {
  Data once, often;
  for (const double value : {0.1, 0.2, 0.4, 0.7}) {
    once.values.push_back(value);
    once.end_response();
    for (int i = 0; i < 100; ++i) often.values.push_back(value);
    often.end_response();
  }
  CHECK(token_mean(once.all()).value == Approx(0.35));
  CHECK(token_mean(once.all()).error == Approx(token_mean(often.all()).error));
}

TEST_CASE("what there is too little of has no value", "[mismatch]") {
  const Data none;
  CHECK(std::isnan(token_mean(none.all()).value));
  CHECK(std::isnan(response_mean(none.all()).value));
  CHECK(std::isnan(running_slope(none.all()).value));
  CHECK(std::isnan(position_slope(none.all()).value));
  Data one;
  one.values = {0.25};
  one.end_response();
  CHECK(token_mean(one.all()).value == 0.25);
  CHECK(std::isnan(token_mean(one.all()).error));
  CHECK(running_slope(one.all()).value == 0.25);
  CHECK(std::isnan(running_slope(one.all()).low));
  CHECK(std::isnan(position_slope(one.all()).value));
}

TEST_CASE("values that do not exist are left out, and positions still count", "[mismatch]") {
  Data data;
  data.values = {0.0, kNaN, 2.0, kNaN, 1.0, 2.0};
  data.offsets = {0, 3, 6};
  CHECK(token_mean(data.all()).value == 1.25);
  CHECK(response_mean(data.all()).value == 2.5);
  CHECK(position_slope(data.all()).value == Approx(1.0));
}

TEST_CASE("quantiles of Student's t", "[mismatch]") {
  CHECK(std::isnan(student_quantile(0)));
  CHECK(student_quantile(1) == Approx(12.7062).epsilon(1e-5));
  CHECK(student_quantile(2) == Approx(4.30265).epsilon(1e-5));
  CHECK(student_quantile(3) == Approx(3.18245).epsilon(0.008));
  CHECK(student_quantile(5) == Approx(2.57058).epsilon(0.002));
  CHECK(student_quantile(30) == Approx(2.04227).epsilon(1e-5));
  CHECK(student_quantile(1000000) == Approx(1.95996).epsilon(1e-5));
}

}  // namespace motley::algos::mismatch
