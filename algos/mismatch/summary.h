// What the tokens' gaps say together: KL both ways, the distribution of p - q, agreement, and how all of it depends on
// position, length and the policy's peakedness.
#pragma once

#include <vector>

#include "algos/mismatch/compare.h"
#include "algos/mismatch/fit.h"

namespace motley::algos::mismatch {

/// A sample of numbers: moments, extremes and quantiles (linear between neighbours). NaN everywhere for none.
struct Spread {
  double mean, deviation, least, largest;
  double q01, q05, q25, q50, q75, q95, q99;
};
Spread spread_of(std::vector<double> values);

/// Tokens (or whole responses) that lie in [low, high) of something; the last bin includes its end.
struct Bin {
  double low = 0, high = 0;
  int64_t tokens = 0, responses = 0;  // responses: by length only
  double kl = 0;                      // mean KL(q || p) of its tokens
  double gap = 0, absolute_gap = 0;   // means of log q - log p and of its magnitude
  double entropy = 0, same_top1 = 0;  // means
  double share = 0;                   // of all tokens' KL(q || p)
};
/// Equal steps of p - q between -edge and edge; what lies beyond counts in the last ones.
struct Histogram {
  double edge = 0;  // the 99 % quantile of |p - q|
  std::vector<int64_t> counts;
};

struct Summary {
  int64_t responses = 0, tokens = 0;
  int64_t not_finite = 0;  // tokens with logits that are no distribution: in no figure below
  // Per token, over the whole vocabulary at the sampler's contexts.
  Estimate kl_qp, kl_pq, variation;
  // Per token, from the drawn tokens alone, which q drew: k1 = log q - log p and k3 = r - 1 - log r, r = p / q, both
  // unbiased for KL(q || p) (J. Schulman 2020, "Approximating KL Divergence").
  Estimate k1, k3;
  // Per response: sums over its tokens. Of the exact token KLs, which is unbiased for the KL of whole responses by the
  // chain rule, and of k1.
  Estimate sequence_kl, sequence_k1;
  double same_top1 = 0, outside = 0, largest_ratio = 0;  // shares; r outside [0.2, 5]; the largest r
  Spread difference;                                     // p - q of the drawn tokens
  Histogram histogram;
  // log q - log p in nats per token: of the running sum over the response (its slope is what a token adds), and the
  // change of the gap and of KL(q || p) per position.
  Interval running, gap_by_position, kl_by_position;
  std::vector<Bin> by_position, by_length, by_top1;
};

/// `offsets` as in Responses. Estimates are NaN where there is nothing to estimate from.
Summary summarize(std::span<const TokenGap> gaps, std::span<const int64_t> offsets);

}  // namespace motley::algos::mismatch
