#include "algos/reference_kl.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "algos/correction.h"

namespace motley::algos {

const std::vector<std::string>& kl_names() {
  static const std::vector<std::string> names{"none", "k1", "k2", "k3"};
  return names;
}

double bounded_log_ratio(double log_ratio) { return std::clamp(log_ratio, -kLogRatioBound, kLogRatioBound); }

KlTerm kl_term(std::string_view name, double log_ratio) {
  const double x = bounded_log_ratio(log_ratio);
  if (name == "k2") return {.value = 0.5 * x * x, .cotangent = x};
  if (name == "k3") return {.value = std::expm1(-x) + x, .cotangent = -std::expm1(-x)};
  throw std::invalid_argument("\"" + std::string(name) + "\" is no loss");
}

}  // namespace motley::algos
