// Sequences of drawn tokens alone, for tests of weights.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/algos/batch_arrays.h"

namespace motley::algos {

/// log p, log q and log pi_old of one drawn token.
struct LogProbs {
  double p = 0.0, q = 0.0, old = 0.0;
};

/// q = 1/2 and p / q = r; pi_old = p.
inline LogProbs token_of_ratio(double r) {
  return {std::log(r) - std::log(2.0), -std::log(2.0), std::log(r) - std::log(2.0)};
}
/// p = q = 1/2 and p / pi_old = u.
inline LogProbs token_of_step(double u) { return {-std::log(2.0), -std::log(2.0), -std::log(2.0) - std::log(u)}; }

struct DrawnTokens : BatchArrays {
  DrawnTokens() { names = {"a", "b"}; }
  DrawnTokens& add(double a, const std::vector<LogProbs>& tokens, int64_t group_index = 0, int64_t lag = 0) {
    for (const LogProbs& token : tokens) {
      sampled.push_back(static_cast<int64_t>(log_p.size()));
      log_p.push_back(token.p);
      log_q.push_back(token.q);
      log_p_old.push_back(token.old);
      advantage.push_back(a);
      sequence.push_back(sequences_);
      group.push_back(group_index);
      staleness.push_back(lag);
      in_record.push_back(1);
      log_p_tail.push_back(-std::numeric_limits<double>::infinity());
      log_q_tail.push_back(-std::numeric_limits<double>::infinity());
      offsets.push_back(static_cast<int64_t>(log_p.size()));
    }
    ++sequences_;
    return *this;
  }
  using BatchArrays::coefficients;
  Coefficients coefficients(const std::string& name, const CorrectionParameters& parameters = {}) const {
    return coefficients(*make_correction(name, parameters));
  }
  /// -b / A of every token, 0 where A is 0.
  std::vector<double> weights(const std::string& name, const CorrectionParameters& parameters = {}) const {
    std::vector<double> b = coefficients(name, parameters).b;
    for (size_t t = 0; t < b.size(); ++t) b[t] = advantage[t] == 0.0 ? b[t] : 0.0 - b[t] / advantage[t];
    return b;
  }

 private:
  int64_t sequences_ = 0;
};

/// The weight of a sequence of one token.
inline double weight_of(const std::string& name, const LogProbs& token, double advantage,
                        const CorrectionParameters& parameters = {}) {
  return DrawnTokens().add(advantage, {token}).weights(name, parameters).front();
}

}  // namespace motley::algos
