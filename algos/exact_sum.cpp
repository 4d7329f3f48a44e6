#include "algos/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace motley::algos {
namespace {

constexpr int64_t kBits = 32;
constexpr int64_t kMask = (int64_t{1} << kBits) - 1;
constexpr int64_t kMostPending = int64_t{1} << 28;  // times 2^33 stays below 2^63

}  // namespace

double ScaledDouble::value() const {
  constexpr int64_t kBeyond = 4096;  // every mantissa under- or overflows there
  return std::ldexp(mantissa, static_cast<int>(std::clamp(exponent, -kBeyond, kBeyond)));
}

ScaledDouble scaled_exp(double x) {
  if (!(std::abs(x) > 300.0) || std::isinf(x)) return {std::exp(x), 0};
  // x = k ln 2 + f; ln 2 in two parts (as in fdlibm), of which the first leaves no rounding in k * part.
  constexpr double kHigh = 6.93147180369123816490e-01, kLow = 1.90821492927058770002e-10;
  x = std::clamp(x, -10000.0, 10000.0);
  const double k = std::nearbyint(x / (kHigh + kLow));
  return {std::exp(std::fma(-k, kLow, std::fma(-k, kHigh, x))), static_cast<int64_t>(k)};
}

int64_t& ExactSum::digit(int64_t place) {
  if (digits_.empty()) first_ = place;
  if (place < first_) {
    digits_.insert(digits_.begin(), static_cast<size_t>(first_ - place), 0);
    first_ = place;
  }
  const auto index = static_cast<size_t>(place - first_);
  if (index >= digits_.size()) digits_.resize(index + 1, 0);
  return digits_[index];
}

void ExactSum::add(const ScaledDouble& term) {
  if (!std::isfinite(term.mantissa)) {
    ++(std::isnan(term.mantissa) ? nan_ : term.mantissa > 0 ? positive_ : negative_);
    return;
  }
  if (term.mantissa == 0.0) return;
  if (pending_ >= kMostPending) carry();
  ++pending_;
  int exponent = 0;
  const auto whole = static_cast<uint64_t>(std::ldexp(std::frexp(std::abs(term.mantissa), &exponent), 53));
  const int64_t lowest = exponent - 53 + term.exponent;
  const int64_t place = lowest >> 5, shift = lowest & 31;
  const uint64_t low = (whole & static_cast<uint64_t>(kMask)) << shift, high = (whole >> kBits) << shift;
  const int64_t sign = term.mantissa < 0.0 ? -1 : 1;
  digit(place);  // makes room below, so that the references that follow stay in order
  digit(place + 2) += sign * static_cast<int64_t>(high >> kBits);
  digit(place + 1) += sign * (static_cast<int64_t>(high & kMask) + static_cast<int64_t>(low >> kBits));
  digit(place) += sign * static_cast<int64_t>(low & kMask);
}

ExactSum& ExactSum::operator+=(const ExactSum& more) {
  nan_ += more.nan_;
  positive_ += more.positive_;
  negative_ += more.negative_;
  if (more.digits_.empty()) return *this;
  ExactSum other = more;
  other.carry();
  if (pending_ >= kMostPending) carry();
  digit(other.first_);
  for (size_t i = 0; i < other.digits_.size(); ++i) digit(other.first_ + static_cast<int64_t>(i)) += other.digits_[i];
  ++pending_;
  return *this;
}

/// Leaves digits of 0 .. 2^32 - 1 below a last one that has the sign.
void ExactSum::carry() {
  pending_ = 0;
  int64_t over = 0;
  for (size_t i = 0; i < digits_.size(); ++i) {
    const int64_t sum = digits_[i] + over;
    digits_[i] = sum & kMask;
    over = sum >> kBits;
  }
  if (over == -1) {
    digits_.back() -= kMask + 1;
  } else if (over != 0) {
    digits_.push_back(over);
  }
}

ScaledDouble ExactSum::scaled() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (nan_ > 0 || (positive_ > 0 && negative_ > 0)) return {std::numeric_limits<double>::quiet_NaN(), 0};
  if (positive_ > 0 || negative_ > 0) return {positive_ > 0 ? kInfinity : -kInfinity, 0};
  ExactSum magnitude = *this;
  magnitude.carry();
  std::vector<int64_t>& digits = magnitude.digits_;
  const bool negative = !digits.empty() && digits.back() < 0;
  if (negative) {
    for (int64_t& value : digits) value = -value;
    magnitude.carry();
  }
  while (!digits.empty() && digits.back() == 0) digits.pop_back();
  if (digits.empty()) return {};
  const auto from_top = [&](size_t i) { return i < digits.size() ? digits[digits.size() - 1 - i] : int64_t{0}; };
  // The 64 leading bits; the last of them also stands for everything below, so that the cast rounds as it should.
  uint64_t leading = static_cast<uint64_t>(from_top(0)) << kBits | static_cast<uint64_t>(from_top(1));
  const int zeros = std::countl_zero(leading);
  const uint64_t third = static_cast<uint64_t>(from_top(2)) << zeros;
  leading = leading << zeros | third >> kBits;
  bool below = (third & static_cast<uint64_t>(kMask)) != 0;
  for (size_t i = 3; i < digits.size(); ++i) below = below || from_top(i) != 0;
  const auto mantissa = static_cast<double>(leading | static_cast<uint64_t>(below));
  const int64_t top = magnitude.first_ + static_cast<int64_t>(digits.size()) - 1;
  return {negative ? -mantissa : mantissa, kBits * (top - 1) - zeros};
}

double ExactSum::mean(int64_t count) const {
  const ScaledDouble sum = scaled();
  return ScaledDouble{sum.mantissa / static_cast<double>(count), sum.exponent}.value();
}

}  // namespace motley::algos
