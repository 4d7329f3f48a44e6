#include "actors/simulation/draw.h"

#include <algorithm>
#include <cmath>

namespace motley::simulation {

kernels::RandomStream stream(uint64_t seed, Draw kind, uint64_t subject, uint64_t repetition) {
  constexpr uint64_t kSimulation = 0x73696d756c617465ull;  // apart from other uses of Purpose::data
  const uint64_t session = kernels::mix(kernels::mix(kernels::mix(kSimulation, uint64_t(kind)), subject), repetition);
  return kernels::RandomStream({seed, kernels::Purpose::data, session, 0});
}

double factor(kernels::RandomStream& random, double spread) {
  if (spread <= 0) return 1.0;
  const double variance = std::log1p(spread * spread);
  return std::exp(std::sqrt(variance) * random.normal() - variance / 2);
}

int64_t draw(const Length& length, kernels::RandomStream& random) {
  constexpr double kMost = 1e15;  // still a whole number as a double
  return std::max<int64_t>(1, std::llround(std::min(kMost, length.mean * factor(random, length.spread))));
}

int64_t draw_reply(const EpisodePlan& plan, kernels::RandomStream& random) {
  const int64_t tokens =
      plan.replies.empty() ? draw(plan.reply, random) : plan.replies[random.below(plan.replies.size())];
  return std::min(tokens, plan.max_tokens);
}

double draw_exponential(double mean, kernels::RandomStream& random) { return -mean * std::log(random.uniform()); }

}  // namespace motley::simulation
