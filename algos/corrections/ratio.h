// Ratios of the corrections, kept as logs until they are bounded.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

#include "algos/correction_piece.h"

namespace motley::algos {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// low <= r <= high, decided on logs, where both edges are exact. NaN is outside.
class RatioBand {
 public:
  RatioBand(double low, double high) : log_low_(std::log(low)), log_high_(std::log(high)) {
    if (!(low < high)) throw std::invalid_argument("its lower bound must be below the upper one");
  }
  /// Of the parameters "low" and "high".
  explicit RatioBand(const CorrectionParameters& parameters)
      : RatioBand(number(parameters, "low"), number(parameters, "high")) {}
  bool contains(double log_ratio) const { return log_ratio >= log_low_ && log_ratio <= log_high_; }

 private:
  double log_low_, log_high_;
};

/// PPO's clip of a ratio u to [1 - low, 1 + high]: where the objective min(u A, clip(u) A) has no gradient.
class ClipBand {
 public:
  ClipBand(double low, double high) : log_low_(std::log1p(-low)), log_high_(std::log1p(high)) {}
  bool clips(double log_u, double advantage) const {
    return (advantage > 0.0 && log_u > log_high_) || (advantage < 0.0 && log_u < log_low_);
  }

 private:
  double log_low_, log_high_;
};

/// Which policy a clip is measured from: the trainer's at the start of the batch, or the sampler as recorded.
class Anchor {
 public:
  explicit Anchor(const CorrectionParameters& parameters) : old_(text(parameters, "anchor") == "old") {}
  bool is_old() const { return old_; }
  /// log u, u = p / pi_old or p / q.
  double log_ratio(const DrawnToken& token) const { return token.log_p - (old_ ? token.log_p_old : token.log_q); }
  static ParameterInfo parameter() {
    return {.name = "anchor",
            .default_value = "old",
            .meaning = "the policy that u is relative to: pi_old, or the sampler's recorded q (no extra pass)",
            .texts = {"old", "sampler"}};
  }

 private:
  bool old_;
};

/// A rule that clips u against its anchor.
class AnchoredRule : public RatioRule {
 public:
  explicit AnchoredRule(const CorrectionParameters& parameters) : anchor_(parameters) {}
  bool uses_sampler() const override { return !anchor_.is_old(); }
  bool needs_old_log_probs() const override { return anchor_.is_old(); }
  bool clips_against_old() const override { return anchor_.is_old(); }

 protected:
  double log_u(const DrawnToken& token) const { return anchor_.log_ratio(token); }

 private:
  Anchor anchor_;
};

/// log of the product of p / q over `tokens`.
inline double sum_log_ratios(std::span<const DrawnToken> tokens) {
  double sum = 0.0;
  for (const DrawnToken& token : tokens) sum += token.log_ratio();
  return sum;
}

/// log of the geometric mean of p / q over `tokens`.
inline double mean_log_ratio(std::span<const DrawnToken> tokens) {
  return sum_log_ratios(tokens) / static_cast<double>(tokens.size());
}

inline ParameterInfo cap_parameter(double value, std::string source) {
  return {.name = "cap",
          .default_value = value,
          .meaning = "largest weight" + std::move(source),
          .minimum = 0.0,
          .above_minimum = true};
}

}  // namespace motley::algos
