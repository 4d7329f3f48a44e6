#include "algos/mismatch/fit.h"

#include <cmath>
#include <limits>
#include <vector>

namespace motley::algos::mismatch {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// body(response, position, value) for every value that exists.
template <class Body>
void for_each_value(const TokenValues& of, Body body) {
  for (size_t i = 0; i + 1 < of.offsets.size(); ++i) {
    for (int64_t t = of.offsets[i]; t < of.offsets[i + 1]; ++t) {
      const double value = of.values[static_cast<size_t>(t)];
      if (!std::isnan(value)) body(i, static_cast<double>(t - of.offsets[i]), value);
    }
  }
}

size_t responses_of(const TokenValues& of) { return of.offsets.empty() ? 0 : of.offsets.size() - 1; }

/// The standard error from one sum of influences per response, n / (n - 1) as the correction for few of them.
double clustered_error(const std::vector<double>& influences, double scale) {
  const auto n = static_cast<double>(influences.size());
  if (influences.size() < 2 || scale == 0.0) return kNone;
  double squares = 0.0;
  for (const double influence : influences) squares += influence * influence;
  return std::sqrt(squares * n / (n - 1.0)) / scale;
}

Interval interval(double value, double error, size_t responses) {
  const double half = responses < 2 ? kNone : student_quantile(static_cast<int64_t>(responses) - 1) * error;
  return {value, value - half, value + half};
}

/// Least squares of y on x through the origin.
Interval slope_of(const std::vector<double>& x, const std::vector<double>& y, const std::vector<size_t>& response,
                  size_t responses) {
  double xx = 0.0, xy = 0.0;
  for (size_t i = 0; i < x.size(); ++i) xx += x[i] * x[i], xy += x[i] * y[i];
  if (xx == 0.0) return {kNone, kNone, kNone};
  const double slope = xy / xx;
  std::vector<double> influences(responses, 0.0);
  for (size_t i = 0; i < x.size(); ++i) influences[response[i]] += x[i] * (y[i] - slope * x[i]);
  return interval(slope, clustered_error(influences, xx), responses);
}

}  // namespace

Estimate token_mean(const TokenValues& of) {
  double total = 0.0, count = 0.0;
  for_each_value(of, [&](size_t, double, double value) { total += value, count += 1.0; });
  if (count == 0.0) return {kNone, kNone};
  const double mean = total / count;
  std::vector<double> influences(responses_of(of), 0.0);
  for_each_value(of, [&](size_t i, double, double value) { influences[i] += value - mean; });
  return {mean, clustered_error(influences, count)};
}

Estimate response_mean(const TokenValues& of) {
  const size_t responses = responses_of(of);
  if (responses == 0) return {kNone, kNone};
  std::vector<double> sums(responses, 0.0);
  double total = 0.0;
  for_each_value(of, [&](size_t i, double, double value) { sums[i] += value, total += value; });
  const double mean = total / static_cast<double>(responses);
  for (double& sum : sums) sum -= mean;
  return {mean, clustered_error(sums, static_cast<double>(responses))};
}

Interval running_slope(const TokenValues& of) {
  std::vector<double> x, y;
  std::vector<size_t> response;
  double sum = 0.0;
  for_each_value(of, [&](size_t i, double position, double value) {
    if (response.empty() || response.back() != i) sum = 0.0;
    sum += value;
    x.push_back(position + 1.0), y.push_back(sum), response.push_back(i);
  });
  return slope_of(x, y, response, responses_of(of));
}

Interval position_slope(const TokenValues& of) {
  double positions = 0.0, values = 0.0, count = 0.0;
  for_each_value(of,
                 [&](size_t, double position, double value) { positions += position, values += value, count += 1.0; });
  std::vector<double> x, y;
  std::vector<size_t> response;
  for_each_value(of, [&](size_t i, double position, double value) {
    x.push_back(position - positions / count), y.push_back(value - values / count), response.push_back(i);
  });
  return slope_of(x, y, response, responses_of(of));
}

double student_quantile(int64_t degrees) {
  if (degrees < 1) return kNone;
  if (degrees == 1) return 12.706204736432095;  // tan(0.475 pi)
  if (degrees == 2) return 4.302652729911275;   // 0.95 sqrt(2 / (1 - 0.95^2))
  const double z = 1.959963984540054, n = static_cast<double>(degrees), z2 = z * z;
  const double g1 = z * (z2 + 1) / 4, g2 = z * ((5 * z2 + 16) * z2 + 3) / 96;
  const double g3 = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
  return z + g1 / n + g2 / (n * n) + g3 / (n * n * n);
}

}  // namespace motley::algos::mismatch
