// Means and slopes of token values whose errors are independent between responses but not within one: every interval
// is cluster-robust, with a response as the cluster.
#pragma once

#include <cstdint>
#include <span>

namespace motley::algos::mismatch {

/// A value and its standard error; NaN where there is none (no token; fewer than two responses).
struct Estimate {
  double value, error;
};
/// A value and the ends of its 95 % interval (Student's t with responses - 1 degrees of freedom).
struct Interval {
  double value, low, high;
};

/// Values of all tokens, response after response: response i owns [offsets[i], offsets[i + 1]). Those that are NaN are
/// left out, as tokens that do not exist (their positions still count).
struct TokenValues {
  std::span<const double> values;
  std::span<const int64_t> offsets;
};

/// Mean over tokens.
Estimate token_mean(const TokenValues& of);
/// Mean over responses of the sum over a response's tokens.
Estimate response_mean(const TokenValues& of);
/// Least squares of each response's running sum on the number of tokens so far, through the origin: what a token adds
/// on average, with long responses weighing more.
Interval running_slope(const TokenValues& of);
/// Ordinary least squares of the values on the position in the response (0 for the first token), with an intercept:
/// the change per position.
Interval position_slope(const TokenValues& of);

/// The 97.5 % quantile of Student's t: exact for 1 and 2 degrees of freedom, else its expansion at the normal's
/// (Abramowitz and Stegun 26.7.5; 0.7 % low at 3, below 0.2 % from 5 on).
double student_quantile(int64_t degrees);

}  // namespace motley::algos::mismatch
