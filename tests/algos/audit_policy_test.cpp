// The audit's policies and problems: their gradients are those of the objective, by differences along them, and their
// samplers are what they are called.
#include <catch2/catch.hpp>
#include <cmath>

#include "algos/audit/enumeration.h"
#include "algos/audit/make_problem.h"
#include "kernels/head.h"

namespace motley::algos::audit {
namespace {

double expected(const std::vector<double>& probability, const std::vector<double>& reward) {
  double total = 0.0;
  for (size_t s = 0; s < reward.size(); ++s) total += probability[s] * reward[s];
  return total;
}

/// A problem without mismatch whose trainer is this policy as it stands.
Problem as_it_stands(Problem problem, const Policy& policy) {
  problem.log_p = problem.log_p_old = policy.log_p();
  return problem;
}

std::unique_ptr<Policy> fresh_policy(bool table, const Tree& tree) {
  return (table ? make_table_policy : make_transformer_policy)(tree, 3, 7);
}

}  // namespace

TEST_CASE("audit: the objective moves along a gradient as inner products say", "[audit]") {
  const bool table = GENERATE(true, false);
  const std::string mismatch = GENERATE("none", "top-p=0.8");  // over the vocabulary, over fixed candidate sets
  CAPTURE(table, mismatch);
  ProblemSpec spec;
  spec.table = table;
  spec.vocabulary = spec.length = 3;
  spec.seed = 4;
  Problem problem = ProblemFamily(spec).at(parse_mismatch(mismatch));
  const Tree tree = problem.tree;
  const std::unique_ptr<Policy> policy = fresh_policy(table, tree);
  problem = as_it_stands(std::move(problem), *policy);
  problem.gram = policy->gram();
  problem.baseline = 0.3;
  std::vector<double> other_reward(problem.reward.size());
  for (size_t s = 0; s < other_reward.size(); ++s) other_reward[s] = std::sin(static_cast<double>(s));
  Problem other = problem;
  other.reward = other_reward;
  const std::vector<double> along = Enumeration(other).exact_gradient(), own = Enumeration(problem).exact_gradient();
  const bool whole = mismatch == "none";
  if (whole) CHECK(Enumeration(problem).exact_gradient_whole() == own);

  constexpr double kStep = 1e-3;
  const auto moved = [&](double rate) {
    const std::unique_ptr<Policy> walker = policy->clone();
    walker->ascend(along, rate);
    const Problem there = as_it_stands(problem, *walker);
    return std::pair{expected(Enumeration(there).p(), problem.reward), expected(Enumeration(there).p(), other_reward)};
  };
  const auto up = moved(kStep), down = moved(-kStep);
  // Weights are rounded to float: 6e-8 of each, against a step of 1e-3.
  CHECK((up.second - down.second) / (2.0 * kStep) == Approx(inner(problem, along, along)).epsilon(2e-3));
  CHECK((up.first - down.first) / (2.0 * kStep) ==
        Approx(inner(problem, own, along)).epsilon(2e-3).margin(2e-3 * inner(problem, along, along)));
}

TEST_CASE("audit: a table's gradient is what the head op gives through an identity, over the candidates", "[audit]") {
  const std::vector<double> logits{0.3, -1.2, 0.9, 0.1}, identity{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  const std::vector<int32_t> candidates{0, 2, 3};
  const std::vector<double> b{0.7, -0.4, 1.1};
  const std::vector<int64_t> offsets{0, 3};
  std::vector<double> log_p(3), lse(1), entropy(1), d_hidden(4), d_weight(16, 0.0);
  kernels::HeadArgs<double> args{};
  args.hidden = logits.data();
  args.weight = identity.data();
  args.rows = 1;
  args.width = args.vocabulary = 4;
  args.temperature = 1.0;
  args.selected = args.candidates = {offsets.data(), candidates.data()};
  args.log_p = log_p.data();
  args.lse = lse.data();
  args.entropy = entropy.data();
  kernels::cpu::head(args);
  kernels::cpu::head_backward(kernels::HeadBackwardArgs<double>{.forward = args,
                                                                .d_log_p = b.data(),
                                                                .d_entropy = nullptr,
                                                                .d_hidden = d_hidden.data(),
                                                                .d_weight = d_weight.data()});
  double total = 0.0;
  for (const double x : b) total += x;
  for (size_t k = 0; k < candidates.size(); ++k) {
    CHECK(d_hidden[static_cast<size_t>(candidates[k])] == Approx(b[k] - std::exp(log_p[k]) * total).epsilon(1e-12));
  }
  CHECK(d_hidden[1] == 0.0);
}

TEST_CASE("audit: mismatches do what they say", "[audit]") {
  ProblemSpec spec;
  spec.vocabulary = 4;
  spec.length = 3;
  const ProblemFamily family(spec);
  const Problem none = family.at(parse_mismatch("none"));
  CHECK(none.log_q == none.log_p);
  const auto furthest = [&](const char* mismatch) {
    const Problem problem = family.at(parse_mismatch(mismatch));
    CHECK(problem.log_p == none.log_p);
    double largest = 0.0;
    for (size_t k = 0; k < problem.log_q.size(); ++k) {
      largest = std::max(largest, std::abs(problem.log_q[k] - problem.log_p[k]));
    }
    return largest;
  };
  // The engine in fp32 on the very weights: what is left is float arithmetic.
  CHECK(furthest("fp32") < 1e-5);
  CHECK(furthest("fp32") > 0.0);
  CHECK(furthest("bf16") > 10.0 * furthest("fp32"));
  CHECK(furthest("fp16") < furthest("bf16"));
  CHECK(furthest("nvfp4") > furthest("bf16"));
  CHECK(furthest("stale=16") > furthest("stale=4"));
  CHECK(furthest("stale=4") > furthest("stale=1"));

  const Problem scaled = family.at(parse_mismatch("scale=0.5"));
  CHECK(scaled.log_q[0] - scaled.log_q[1] == Approx(0.5 * (scaled.log_p[0] - scaled.log_p[1])));

  const Problem cut = family.at(parse_mismatch("top-p=0.8"));
  for (size_t row = 0; row < cut.rows(); ++row) {
    double mass = 0.0, smallest = 1.0, largest_outside = 0.0;
    for (size_t k = row * 4; k < row * 4 + 4; ++k) {
      const double p = std::exp(cut.log_p[k]);
      if (cut.candidate[k]) mass += p, smallest = std::min(smallest, p);
      if (!cut.candidate[k]) largest_outside = std::max(largest_outside, p);
    }
    CHECK(mass >= 0.8);
    CHECK(mass - smallest < 0.8);
    CHECK(largest_outside <= smallest);
  }
  CHECK(cut.truncated());
}

}  // namespace motley::algos::audit
