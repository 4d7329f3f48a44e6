// What corrections are summed from: a ratio rule weights the drawn tokens, sequence filters leave whole sequences out,
// and centering subtracts each token's expectation under the sampler. A piece is one file of algos/corrections/ that
// registers itself; algos/composed_correction.cpp puts them together, and alone deals with NaN, advantages and groups.
// Notation as in algos/correction.h.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "algos/correction.h"

namespace motley::algos {

/// A drawn token. Log-probabilities may be -inf; the log-ratios that a piece says it reads are never NaN.
struct DrawnToken {
  double log_p = 0.0, log_q = 0.0;
  double log_p_old = 0.0;  // only for pieces that need it
  double advantage = 0.0;
  double start_lag = 0.0;  // weight versions from the token's drawing to the start of the batch
  double lag = 0.0;        // and to now: a step is one over the steps of a batch
  double log_ratio() const { return log_p - log_q; }
};

using SampleNumbers = std::map<std::string, std::vector<double>>;  // Coefficients::samples

/// The weight w of each drawn token: b[y] = -A w.
class RatioRule {
 public:
  virtual ~RatioRule() = default;
  /// token: a weight depends on its token alone; sequence and batch: on all that weights() is given.
  virtual Scope scope() const { return Scope::token; }
  virtual bool uses_sampler() const { return true; }
  virtual bool needs_old_log_probs() const { return false; }
  virtual bool clips_against_old() const { return false; }
  /// `tokens` are those of one sequence, in order, or with batch scope those of all sequences of an optimizer step.
  /// A weight of NaN becomes 0.
  virtual void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers& numbers) const = 0;
};

/// f(p_v / q_v) of one id: the ratio itself, where q f = p holds without rounding, or another value.
struct TokenWeight {
  bool is_ratio = false;
  double value = 0.0;
  static TokenWeight ratio() { return {true, 0.0}; }
};

/// A rule whose weight is a function of p and q of one id (and of the sign of A): what score centering can subtract.
class TokenRule : public RatioRule {
 public:
  /// Of any id, drawn or not. The log-ratio is not NaN.
  virtual TokenWeight weight(double log_p, double log_q, double advantage) const = 0;
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const final {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const TokenWeight w = weight(tokens[t].log_p, tokens[t].log_q, tokens[t].advantage);
      weights[t] = w.is_ratio ? bounded_exp(tokens[t].log_ratio()) : w.value;
    }
  }
};

/// Keeps or drops whole sequences, on p / q.
class SequenceFilter {
 public:
  virtual ~SequenceFilter() = default;
  /// `tokens` of one sequence, at least one.
  virtual bool keeps(std::span<const DrawnToken> tokens) const = 0;
};

/// Subtracts from a token's update its expectation under the sampler.
class Centering {
 public:
  virtual ~Centering() = default;
  /// Adds the terms of one token, whose advantage is not 0, to b.
  virtual void add(const CorrectionBatch& batch, size_t token, const TokenRule& rule, std::span<double> b) const = 0;
};

}  // namespace motley::algos
