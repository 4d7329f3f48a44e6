// Ratios r = p / q of the corrections, kept as logs until they are bounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "algos/correction.h"

namespace motley::algos {

/// log r of the drawn token of token t.
inline double drawn_log_ratio(const CorrectionBatch& batch, size_t t) {
  const auto entry = static_cast<size_t>(batch.sampled[t]);
  return batch.log_p[entry] - batch.log_q[entry];
}

inline double bounded_exp(double log_ratio) { return std::exp(std::clamp(log_ratio, -kLogRatioBound, kLogRatioBound)); }

/// low <= r <= high, decided on logs, where both edges are exact. NaN is outside.
class RatioBand {
 public:
  explicit RatioBand(const CorrectionParameters& parameters)
      : log_low_(std::log(number(parameters, "low"))), log_high_(std::log(number(parameters, "high"))) {
    if (!(number(parameters, "low") >= 0.0 && number(parameters, "low") < number(parameters, "high"))) {
      throw std::invalid_argument("the ratio band needs 0 <= low < high");
    }
  }
  bool contains(double log_ratio) const { return log_ratio >= log_low_ && log_ratio <= log_high_; }

 private:
  double log_low_, log_high_;
};

}  // namespace motley::algos
