// Sums of doubles without rounding: the same bits for every order and every split into parts, so that a mean can be
// shipped as numerator and denominator and added up anywhere. A number in base 2^32 with as many digits as its terms
// need, after the small superaccumulator of arXiv 1505.05571 (Neal), but with an exponent that is not limited to a
// double's: ratios of probabilities overflow it.
#pragma once

#include <cstdint>
#include <vector>

namespace motley::algos {

/// mantissa * 2^exponent, for what a double cannot hold.
struct ScaledDouble {
  double mantissa = 0.0;
  int64_t exponent = 0;
  /// Infinite where it overflows, 0 where it underflows.
  double value() const;
};
/// exp(x) for any x. Exactly std::exp(x) for |x| <= 300; beyond +-10,000 as if x were there, so that a sum stays small
/// in memory: no double tells the two apart.
ScaledDouble scaled_exp(double x);

class ExactSum {
 public:
  void add(double value) { add({value, 0}); }
  void add(const ScaledDouble& value);
  ExactSum& operator+=(const ExactSum& more);

  /// The sum, rounded once to 53 bits. NaN and infinities as addition in any order would have them; zero is +0.
  ScaledDouble scaled() const;
  double value() const { return scaled().value(); }
  /// sum / count, which may be finite where the sum overflows. `count` > 0.
  double mean(int64_t count) const;

 private:
  int64_t& digit(int64_t place);
  void carry();
  std::vector<int64_t> digits_;  // of 2^(32 (first_ + i)), between two carries of any size
  int64_t first_ = 0;
  int64_t pending_ = 0;                            // additions since the last carry, each of less than 2^33 a digit
  int64_t nan_ = 0, positive_ = 0, negative_ = 0;  // terms that are no finite number
};

}  // namespace motley::algos
