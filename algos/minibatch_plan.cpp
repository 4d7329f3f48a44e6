#include "algos/minibatch_plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/philox.h"

namespace motley::algos {
namespace {

std::vector<size_t> shuffled(size_t count, uint64_t seed, uint64_t session) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  kernels::RandomStream random({seed, kernels::Purpose::data, session, 0});
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace

std::vector<std::vector<size_t>> plan_minibatches(const SampleSelection& selection, const MinibatchRule& rule,
                                                  uint64_t batch) {
  const size_t groups = selection.groups.size();
  const size_t count = std::min(static_cast<size_t>(rule.minibatches), groups);
  std::vector<std::vector<size_t>> plan;
  for (int64_t epoch = 0; epoch < rule.epochs; ++epoch) {
    if (rule.minibatches == 1) {
      plan.push_back(selection.kept);
      continue;
    }
    const std::vector<size_t> order = shuffled(groups, rule.seed, kernels::mix(batch, static_cast<uint64_t>(epoch)));
    for (size_t m = 0; m < count; ++m) {
      plan.emplace_back();
      for (size_t i = groups * m / count; i < groups * (m + 1) / count; ++i) {
        const std::vector<size_t>& group = selection.groups[order[i]];
        plan.back().insert(plan.back().end(), group.begin(), group.end());
      }
    }
  }
  return plan;
}

}  // namespace motley::algos
