#include "algos/audit/make_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "algos/audit/enumeration.h"
#include "kernels/philox.h"

namespace motley::algos::audit {
namespace {

constexpr double kRewarded = 0.4;
/// Of a gradient step. A transformer's weights are shared by all prefixes, so that a step of the same rate moves its
/// policy much further. With these, 16 steps are about 0.2 nats per token (docs/audit.md).
constexpr double kTableRate = 1.0, kTransformerRate = 0.002;

// Sessions of the seed's random numbers (Purpose::data).
constexpr uint64_t kRewards = 1, kNoise = 2;

std::vector<double> random_rewards(size_t sequences, uint64_t seed) {
  kernels::RandomStream random({seed, kernels::Purpose::data, kRewards});
  std::vector<double> reward(sequences);
  do {
    for (double& value : reward) value = random.uniform() < kRewarded ? 1.0 : 0.0;
  } while (std::all_of(reward.begin(), reward.end(), [&](double r) { return r == reward[0]; }));
  return reward;
}

/// The gradient of the expected reward, of the policy as it stands.
std::vector<double> exact_gradient(Problem problem, const Policy& policy) {
  problem.log_p = problem.log_p_old = problem.log_q = policy.log_p();
  return Enumeration(problem).exact_gradient();
}

/// The smallest set of most probable ids whose mass reaches top_p, ties to the lower id; its mass becomes 1.
void truncate(double top_p, std::span<double> log_q, std::span<uint8_t> candidate) {
  std::vector<size_t> order(log_q.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return log_q[a] > log_q[b]; });
  double mass = 0.0;
  for (const size_t v : order) {
    candidate[v] = mass < top_p;
    if (candidate[v]) mass += std::exp(log_q[v]);
  }
  for (size_t v = 0; v < log_q.size(); ++v) {
    log_q[v] = candidate[v] ? log_q[v] - std::log(mass) : -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

ProblemFamily::ProblemFamily(const ProblemSpec& spec) : spec_(spec) {
  if (spec.steps_since_old < 0 || spec.steps_since_old > kWalk) {
    throw std::invalid_argument("the steps since pi_old may be 0 to " + std::to_string(kWalk));
  }
  Problem& problem = trainer_;
  problem.vocabulary = spec.vocabulary;
  problem.length = spec.length;
  if (spec.end) problem.end = 0;
  problem.tree = Tree(spec.vocabulary, spec.length, problem.end);
  if (!spec.table && problem.entries() > kMaxGramEntries) {
    throw std::invalid_argument("vocabulary " + std::to_string(spec.vocabulary) + " and length " +
                                std::to_string(spec.length) + " make " + std::to_string(problem.entries()) +
                                " pairs of a prefix and a token, and the Gram matrix of a transformer's " +
                                "gradients is kept for at most " + std::to_string(kMaxGramEntries) +
                                ": take a smaller vocabulary or length, or a table as the policy");
  }
  problem.candidate.assign(problem.entries(), 1);
  problem.reward = random_rewards(problem.tree.sequences().size(), spec.seed);
  problem.record_top_k = spec.record_top_k;
  problem.steps_since_old = spec.steps_since_old;

  const auto make = spec.table ? make_table_policy : make_transformer_policy;
  walk_.push_back(make(problem.tree, spec.vocabulary, spec.seed));
  for (int64_t step = 0; step < kWalk; ++step) {
    std::unique_ptr<Policy> next = walk_.back()->clone();
    next->ascend(exact_gradient(problem, *next), spec.table ? kTableRate : kTransformerRate);
    walk_.push_back(std::move(next));
  }
  problem.log_p = walk_.back()->log_p();
  problem.log_p_old = before_last(spec.steps_since_old).log_p();
  problem.gram = walk_.back()->gram();
}

Problem ProblemFamily::at(const Mismatch& mismatch) const {
  if (spec_.steps_since_old + mismatch.stale > kWalk) {
    throw std::invalid_argument("stale and the steps since pi_old may be " + std::to_string(kWalk) + " together");
  }
  Problem problem = trainer_;
  const Policy& sampler = before_last(spec_.steps_since_old + mismatch.stale);
  const kernels::NumericProfile* profile = kernels::find_profile(mismatch.profile);
  problem.log_q = profile ? sampler.log_q(*profile) : sampler.log_p();
  problem.staleness = mismatch.stale;
  distort(mismatch, problem);
  const std::vector<double> q = Enumeration(problem).q();
  problem.baseline = spec_.baseline.value_or(std::inner_product(q.begin(), q.end(), problem.reward.begin(), 0.0));
  check(problem);
  return problem;
}

void ProblemFamily::distort(const Mismatch& mismatch, Problem& problem) const {
  kernels::RandomStream random({spec_.seed, kernels::Purpose::data, kNoise});
  const auto width = static_cast<size_t>(problem.vocabulary);
  for (size_t row = 0; row < problem.rows(); ++row) {
    const std::span<double> log_q = std::span(problem.log_q).subspan(row * width, width);
    if (mismatch.scale != 1.0 || mismatch.noise != 0.0) {
      double sum = 0.0;
      for (double& value : log_q) {
        value = value * mismatch.scale + mismatch.noise * random.normal();
        sum += std::exp(value);
      }
      for (double& value : log_q) value -= std::log(sum);
    }
    if (mismatch.top_p < 1.0) truncate(mismatch.top_p, log_q, std::span(problem.candidate).subspan(row * width, width));
  }
}

}  // namespace motley::algos::audit
