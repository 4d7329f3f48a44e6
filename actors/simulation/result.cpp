#include "actors/simulation/result.h"

namespace motley::simulation {

int64_t quantile(const Histogram& histogram, double share) {
  int64_t all = 0, below = 0;
  for (const auto& [value, count] : histogram) all += count;
  for (const auto& [value, count] : histogram) {
    below += count;
    if (static_cast<double>(below) >= share * static_cast<double>(all)) return value;
  }
  return 0;
}

double mean(const Histogram& histogram) {
  double sum = 0.0, all = 0.0;
  for (const auto& [value, count] : histogram) {
    sum += static_cast<double>(value) * static_cast<double>(count);
    all += static_cast<double>(count);
  }
  return all > 0 ? sum / all : 0.0;
}

}  // namespace motley::simulation
