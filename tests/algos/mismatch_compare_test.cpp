// Token gaps against a reference in long double, and the summary on gaps made by hand.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "algos/mismatch/summary.h"
#include "kernels/philox.h"

namespace motley::algos::mismatch {
namespace {

std::vector<float> logits(uint64_t seed, size_t count, double scale) {
  kernels::RandomStream stream({seed, kernels::Purpose::data, 2});
  std::vector<float> z;
  for (size_t v = 0; v < count; ++v) z.push_back(static_cast<float>(scale * (stream.uniform() - 0.5)));
  return z;
}

struct Reference {
  std::vector<long double> log_p;
  explicit Reference(const std::vector<float>& z) {
    long double sum = 0.0L;
    for (const float value : z) sum += std::exp(static_cast<long double>(value));
    for (const float value : z) log_p.push_back(static_cast<long double>(value) - std::log(sum));
  }
};

long double kl(const Reference& q, const Reference& p) {
  long double sum = 0.0L;
  for (size_t v = 0; v < q.log_p.size(); ++v) sum += std::exp(q.log_p[v]) * (q.log_p[v] - p.log_p[v]);
  return sum;
}

TokenGap with(double gap, double kl = 0.0, double top1 = 0.6) {
  TokenGap made;
  made.gap = gap;
  made.kl_qp = kl;
  made.top1 = top1;
  made.difference = gap;
  return made;
}

}  // namespace

TEST_CASE("KL both ways agrees with a reference, for far and for very near distributions", "[mismatch]") {
  for (const size_t vocabulary : {size_t{2}, size_t{17}, size_t{301}}) {
    for (const double distance : {40.0, 1.0, 1e-2, 1e-4}) {
      std::vector<float> zq = logits(1, vocabulary, 6.0), zp = zq;
      const std::vector<float> noise = logits(2, vocabulary, distance);
      for (size_t v = 0; v < vocabulary; ++v) zp[v] += noise[v];
      const Reference q(zq), p(zp);
      const TokenGap gap = compare_logits(zq, zp, 1);
      INFO(vocabulary << " ids, distance " << distance);
      CHECK(gap.kl_qp == Approx(static_cast<double>(kl(q, p))).epsilon(1e-7));
      CHECK(gap.kl_pq == Approx(static_cast<double>(kl(p, q))).epsilon(1e-7));
      CHECK(gap.gap == Approx(static_cast<double>(q.log_p[1] - p.log_p[1])).margin(1e-14));
      CHECK(gap.difference == Approx(static_cast<double>(std::exp(p.log_p[1]) - std::exp(q.log_p[1]))).margin(1e-15));
      CHECK(gap.finite);
    }
  }
}

TEST_CASE("equal logits give exactly zero, one id has no distance", "[mismatch]") {
  const std::vector<float> z = logits(3, 50, 30.0);
  const TokenGap same = compare_logits(z, z, 7);
  CHECK(same.kl_qp == 0.0);
  CHECK(same.kl_pq == 0.0);
  CHECK(same.gap == 0.0);
  CHECK(same.difference == 0.0);
  CHECK(same.variation == 0.0);
  CHECK(same.same_top1);
  const std::vector<float> one{3.0f}, other{-5.0f};
  CHECK(compare_logits(one, other, 0).kl_qp == 0.0);
  CHECK(compare_logits(one, other, 0).entropy == 0.0);
}

TEST_CASE("probabilities that underflow give a large finite KL", "[mismatch]") {
  const std::vector<float> sure{0.0f, -2000.0f, -1990.0f}, unsure{0.0f, 0.0f, -1990.0f};
  const TokenGap gap = compare_logits(sure, unsure, 0);
  CHECK(gap.kl_qp == Approx(std::log(2.0)));
  CHECK(gap.kl_pq == Approx(1000.0 - std::log(2.0)));
  CHECK(gap.same_top1);
  const TokenGap other = compare_logits(sure, std::vector<float>{-2000.0f, 0.0f, -1.0f}, 0);
  CHECK_FALSE(other.same_top1);
}

TEST_CASE("logits that are no distribution are counted and in no figure", "[mismatch]") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> good{1.0f, 2.0f}, broken{1.0f, bad};
    CHECK_FALSE(compare_logits(good, broken, 0).finite);
    CHECK_FALSE(compare_logits(broken, good, 0).finite);
    CHECK(compare_logits(broken, broken, 0).kl_qp == 0.0);
  }
  TokenGap broken;
  broken.finite = false;
  const std::vector<TokenGap> gaps{with(0.25, 0.5), broken, with(0.75, 1.0)};
  const std::vector<int64_t> offsets{0, 2, 3};
  const Summary summary = summarize(gaps, offsets);
  CHECK(summary.not_finite == 1);
  CHECK(summary.tokens == 3);
  CHECK(summary.k1.value == 0.5);
  CHECK(summary.kl_qp.value == 0.75);
  CHECK(summary.sequence_kl.value == 0.75);
  CHECK(summary.same_top1 == 1.0);
  CHECK(summary.difference.largest == 0.75);
  int64_t binned = 0;
  for (const Bin& bin : summary.by_position) binned += bin.tokens;
  CHECK(binned == 2);
}

TEST_CASE("a summary counts every token once in each kind of bin", "[mismatch]") {
  std::vector<TokenGap> gaps;
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < 30; ++i) {
    for (int t = 0; t <= i; ++t) {
      gaps.push_back(with(0.001 * t, 1e-4 * (t + 1), t % 7 == 0 ? 1.0 : 0.1 * (t % 7)));
      gaps.back().same_top1 = t % 4 != 0;
    }
    offsets.push_back(static_cast<int64_t>(gaps.size()));
  }
  const Summary summary = summarize(gaps, offsets);
  for (const std::vector<Bin>* bins : {&summary.by_position, &summary.by_length, &summary.by_top1}) {
    int64_t tokens = 0;
    double share = 0.0, kl = 0.0;
    for (const Bin& bin : *bins) {
      tokens += bin.tokens;
      share += bin.share;
      kl += bin.kl * static_cast<double>(bin.tokens);
      CHECK(bin.low < bin.high);
    }
    CHECK(tokens == summary.tokens);
    CHECK(share == Approx(1.0));
    CHECK(kl / static_cast<double>(tokens) == Approx(summary.kl_qp.value));
  }
  CHECK(summary.by_position.size() <= 16);
  CHECK(summary.by_position.front().gap < summary.by_position.back().gap);
  CHECK(summary.gap_by_position.value == Approx(0.001));
  CHECK(summary.kl_by_position.value == Approx(1e-4));
  int64_t responses = 0;
  for (const Bin& bin : summary.by_length) responses += bin.responses;
  CHECK(responses == 30);
  int64_t counted = 0;
  for (const int64_t count : summary.histogram.counts) counted += count;
  CHECK(counted == summary.tokens);
}

TEST_CASE("the ratio's band and extremes", "[mismatch]") {
  const std::vector<TokenGap> gaps{with(0.0), with(std::log(6.0)), with(-std::log(8.0)), with(1.0)};
  const Summary summary = summarize(gaps, std::vector<int64_t>{0, 4});
  CHECK(summary.outside == 0.5);
  CHECK(summary.largest_ratio == Approx(8.0));
  CHECK(summary.k3.value ==
        Approx((0.0 + (1 / 6.0 - 1 + std::log(6.0)) + (8 - 1 - std::log(8.0)) + (std::exp(-1.0) - 1 + 1)) / 4));
  const Summary none = summarize({}, std::vector<int64_t>{0});
  CHECK(none.tokens == 0);
  CHECK(std::isnan(none.kl_qp.value));
  CHECK(std::isnan(none.difference.mean));
}

}  // namespace motley::algos::mismatch
