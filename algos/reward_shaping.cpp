#include "algos/reward_shaping.h"

#include <algorithm>

namespace motley::algos {

const std::vector<std::string>& overlong_names() {
  static const std::vector<std::string> names{"keep", "filter", "penalty"};
  return names;
}

double overlong_penalty(int64_t tokens, int64_t max_tokens, int64_t buffer) {
  const int64_t over = std::clamp<int64_t>(tokens - (max_tokens - buffer), 0, buffer);
  return over == 0 ? 0.0 : -static_cast<double>(over) / static_cast<double>(buffer);
}

}  // namespace motley::algos
