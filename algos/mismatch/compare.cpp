#include "algos/mismatch/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "kernels/head.h"
#include "kernels/parallel.h"

namespace motley::algos::mismatch {
namespace {

constexpr int64_t kLogitsAtOnce = int64_t{1} << 22;  // of each side

/// log of the sum of exp(z), in double; NaN or infinite if a logit is.
double log_sum_exp(std::span<const float> z) {
  const float largest = *std::max_element(z.begin(), z.end());
  double sum = 0.0;
  for (const float value : z) sum += std::exp(static_cast<double>(value) - static_cast<double>(largest));
  return static_cast<double>(largest) + std::log(sum);
}

bool all_finite(std::span<const float> z) {
  return std::all_of(z.begin(), z.end(), [](float value) { return std::isfinite(value); });
}

/// weight (e^d - 1 - d): a term of KL. Beyond 30 the exponential is taken with the weight, since it may overflow alone.
double term(double weight, double log_weight, double d) {
  return d < 30.0 ? weight * (std::expm1(d) - d) : std::exp(log_weight + d) - weight * (1.0 + d);
}

/// Logits of some rows, divided by the temperature, and log p of their drawn tokens, as kernels/head.h computes them.
struct Logits {
  std::vector<float> z, log_p;

  void compute(const HeadInput& side, int64_t first, std::span<const int32_t> ids, int64_t vocabulary,
               double temperature) {
    const auto rows = static_cast<int64_t>(ids.size());
    z.resize(static_cast<size_t>(rows * vocabulary));
    log_p.resize(ids.size());
    std::vector<int64_t> offsets(ids.size() + 1);
    std::iota(offsets.begin(), offsets.end(), 0);
    kernels::HeadArgs<float> args{};
    args.hidden = side.hidden.data<float>() + first * side.hidden.dim(1);
    args.weight = side.weight.data<float>();
    args.rows = rows;
    args.width = side.hidden.dim(1);
    args.vocabulary = vocabulary;
    args.temperature = temperature;
    args.selected = {offsets.data(), ids.data()};
    args.log_p = log_p.data();
    args.kept_logits = z.data();
    args.kept_rows = rows;
    kernels::cpu::head(args);
  }
  std::span<const float> row(int64_t r, int64_t vocabulary) const {
    return {z.data() + r * vocabulary, static_cast<size_t>(vocabulary)};
  }
};

void check(const HeadInput& q, const HeadInput& p, std::span<const int32_t> ids, int64_t vocabulary,
           double temperature) {
  if (!(temperature > 0.0) || std::isinf(temperature)) {
    throw std::invalid_argument("mismatch: the temperature must be a finite number above 0");
  }
  for (const HeadInput* side : {&q, &p}) {
    MOTLEY_CHECK(side->hidden.dim(0) == static_cast<int64_t>(ids.size()) && vocabulary >= 1 &&
                     vocabulary <= side->weight.dim(0) && side->hidden.dim(1) == side->weight.dim(1),
                 "compare_tokens", "needs one hidden state per token, and a head of that width");
  }
  for (const int32_t id : ids) {
    MOTLEY_CHECK(id >= 0 && id < vocabulary, "compare_tokens", "a drawn id is outside the vocabulary");
  }
}

}  // namespace

TokenGap compare_logits(std::span<const float> zq, std::span<const float> zp, int32_t drawn) {
  TokenGap gap;
  gap.finite = all_finite(zq) && all_finite(zp);
  if (!gap.finite) return gap;
  const double lse_q = log_sum_exp(zq), lse_p = log_sum_exp(zp);
  for (size_t v = 0; v < zq.size(); ++v) {
    const double log_q = static_cast<double>(zq[v]) - lse_q, log_p = static_cast<double>(zp[v]) - lse_p;
    const double q = std::exp(log_q), p = std::exp(log_p), d = log_p - log_q;
    gap.kl_qp += term(q, log_q, d);
    gap.kl_pq += term(p, log_p, -d);
    gap.variation += 0.5 * std::abs(p - q);
    gap.entropy -= p * log_p;
    gap.top1 = std::max(gap.top1, p);
    if (v != static_cast<size_t>(drawn)) continue;
    gap.gap = -d;
    gap.difference = p - q;
  }
  gap.same_top1 =
      std::max_element(zq.begin(), zq.end()) - zq.begin() == std::max_element(zp.begin(), zp.end()) - zp.begin();
  return gap;
}

std::vector<TokenGap> compare_tokens(const HeadInput& q, const HeadInput& p, std::span<const int32_t> ids,
                                     int64_t vocabulary, double temperature) {
  check(q, p, ids, vocabulary, temperature);
  const auto rows = static_cast<int64_t>(ids.size());
  const int64_t at_once = std::max<int64_t>(1, kLogitsAtOnce / vocabulary);
  std::vector<TokenGap> gaps(ids.size());
  Logits of_q, of_p;
  for (int64_t first = 0; first < rows; first += at_once) {
    const auto piece = ids.subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(at_once, rows - first)));
    of_q.compute(q, first, piece, vocabulary, temperature);
    of_p.compute(p, first, piece, vocabulary, temperature);
    const int64_t grain = std::max<int64_t>(1, 4096 / vocabulary);
    kernels::parallel_for(static_cast<int64_t>(piece.size()), grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto i = static_cast<size_t>(r);
        TokenGap& gap = gaps[static_cast<size_t>(first + r)];
        gap = compare_logits(of_q.row(r, vocabulary), of_p.row(r, vocabulary), piece[i]);
        gap.log_q = of_q.log_p[i];
        gap.log_p = of_p.log_p[i];
      }
    });
  }
  return gaps;
}

}  // namespace motley::algos::mismatch
