// How far sampler and trainer are apart on the tokens that were drawn: sums over loss tokens, from which the metrics of
// docs/metrics.md follow at the end. Numerators and denominators are kept apart and exact (algos/exact_sum.h), so parts
// (a sample, a sampler group, a number format, a staleness bucket, another process) add up to the whole bit for bit, in
// any order. Nothing is computed on a clamped value.
//
// q, p: sampler's and trainer's probability of the drawn token, r = p / q.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "algos/exact_sum.h"
#include "algos/learner.h"

namespace motley::algos {

/// low <= r <= high, decided on logs, where both edges are exact. NaN is outside.
struct RatioInterval {
  RatioInterval(double low, double high);
  bool contains(double log_ratio) const { return log_ratio >= log_low && log_ratio <= log_high; }
  double log_low, log_high;
};

/// What is known of one loss token before it is trained on.
struct TokenScore {
  double log_p = 0.0;       // trainer; -inf: the trainer rules the token out
  double log_q = 0.0;       // sampler; finite
  double entropy = 0.0;     // of the trainer, over the support of p
  bool masked = false;      // the correction gives the token weight 0
  bool has_tail = false;    // the sampler has mass outside the recorded ids; only then:
  double log_p_tail = 0.0;  // the trainer's log mass there; -inf: none
  double log_q_tail = 0.0;  // the sampler's
};

class Diagnostics {
 public:
  /// `band`: the ratios that training keeps.
  void add(const TokenScore& token, const RatioInterval& band);
  /// All tokens so far are of one sample: together they count once in means over samples.
  void close_sample();
  Diagnostics& operator+=(const Diagnostics& more);
  /// Writes every metric that has a value as <prefix><name>. True extremes: what no double holds becomes the largest
  /// one. A NaN among the scores makes NaN of the means that it enters.
  void write(Metrics& metrics, const std::string& prefix) const;

 private:
  void write_ratios(Metrics& metrics, const std::string& prefix) const;
  void write_tails(Metrics& metrics, const std::string& prefix) const;

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  int64_t tokens_ = 0, samples_ = 0, outside_ = 0, outside_band_ = 0, masked_ = 0;
  ExactSum log_ratio_;                // log r
  ExactSum reverse_, k3_;             // r log r - (r - 1); r - 1 - log r
  ExactSum ratio_, ratio_squared_;    // r, r^2
  ExactSum banded_, banded_squared_;  // the same of the ratios in the band
  ExactSum difference_;               // p - q
  ExactSum entropy_;
  ExactSum sample_log_ratio_;             // over samples: the mean of log r over a sample's tokens
  ExactSum sampler_tail_, trainer_tail_;  // masses, over the tokens of log_tail_ratios_
  std::vector<double> log_tail_ratios_;   // log(sampler's mass / trainer's); parts add up as multisets
  double largest_log_ratio_ = -kInfinity, smallest_difference_ = kInfinity, largest_difference_ = -kInfinity;
};

}  // namespace motley::algos
