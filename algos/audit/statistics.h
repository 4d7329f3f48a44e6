// What a correction's gradient estimate is worth on an enumerable problem: bias, variance, mean squared error, cosine
// and drift against the exact gradient. The correction is called as the learner calls it (Correction::coefficients).
//
// Per sequence the estimate is g(s) = -sum_k b_k grad log p_k, per batch the mean over its sequences: a constant
// denominator, under which an estimator can be unbiased at all. Token and sequence scopes are enumerated. A rule of
// batch scope is enumerated for batches of two (every ordered pair of at most 64 sequences) and sampled for others.
#pragma once

#include <array>
#include <cstdint>

#include "algos/audit/enumeration.h"

namespace motley::algos::audit {

/// A figure; where it was sampled, with half the width of its 95 % interval (jackknife over blocks of batches).
struct Figure {
  double value = 0.0;
  double half_width = 0.0;
};

/// All but cosine and masked are squared norms relative to the squared norm of the exact gradient.
struct Figures {
  bool exact = true;    // false: sampled
  int64_t batches = 0;  // that were drawn; 0: none
  Figure bias;          // |E g - exact|^2, exact: the gradient over the replayed candidate sets
  Figure bias_whole;    // the same against the objective over the whole vocabulary; differs where q is truncated
  Figure variance;      // of the mean over a batch: trace of its covariance
  Figure error;         // mean squared error of it: bias + variance
  Figure cosine;        // between E g and the exact gradient
  Figure drift_up, drift_down;  // |E g|^2 where every advantage is 1, and where it is -1
  Figure masked;                // expected share of tokens that the rule masks
};

/// Every figure by the name that output uses.
struct FigureName {
  const char* name;
  Figure Figures::*member;
};
inline constexpr std::array<FigureName, 8> kFigures{{{"bias", &Figures::bias},
                                                     {"bias_whole", &Figures::bias_whole},
                                                     {"variance", &Figures::variance},
                                                     {"error", &Figures::error},
                                                     {"cosine", &Figures::cosine},
                                                     {"drift_up", &Figures::drift_up},
                                                     {"drift_down", &Figures::drift_down},
                                                     {"masked", &Figures::masked}}};

struct AuditOptions {
  int64_t batch = 128;            // sequences, >= 1
  int64_t sampled_batches = 400;  // of a batch-scope rule that is not enumerated, >= kBlocks
  uint64_t seed = 0;              // of their draws
};
inline constexpr int64_t kBlocks = 20;
inline constexpr size_t kMostPairs = 64;  // sequences of which every pair is enumerated

/// False where the exact gradient is 0 up to rounding (every reward within reach is the same): nothing is relative to
/// it.
bool has_gradient(const Enumeration& all);

/// Throws std::invalid_argument for options outside their ranges and for a problem whose exact gradient is 0.
Figures audit(const Enumeration& all, const Correction& correction, const AuditOptions& options);

/// E g as coefficients [entries] on the logits, by enumeration of single sequences; with every advantage `constant`, or
/// the problem's own where that is 0. Not for batch scope.
std::vector<double> expected_gradient(const Enumeration& all, const Correction& correction, double constant = 0.0);

/// How far q is from p, over the tokens that the sampler draws.
struct Distance {
  double kl = 0.0;              // mean of log q - log p per token
  double kl_reverse = 0.0;      // E_p of log p - log q per token of p's sequences, over the candidates; may be infinite
  double outside = 0.0;         // share of tokens with r outside [0.2, 5]
  double max_ratio = 0.0;       // of the sequences that can be drawn, token by token
  double candidate_mass = 1.0;  // the trainer's mass inside the candidate set, mean over tokens
  double effective_samples =
      0.0;  // 1 / E_q[W^2], W the product of r: share of a batch that weighted sequences are worth
};
Distance distance(const Enumeration& all);

}  // namespace motley::algos::audit
