// What is known of corrections without any experiment, on problems that are enumerated, to 1e-10.
#include <catch2/catch.hpp>
#include <cmath>

#include "algos/audit/make_problem.h"
#include "algos/audit/statistics.h"

namespace motley::algos::audit {
namespace {

constexpr double kTiny = 1e-10;

Problem problem_with(const std::string& mismatch, uint64_t seed = 3, bool table = true, int64_t record_top_k = 0) {
  ProblemSpec spec;
  spec.table = table;
  spec.vocabulary = 4;
  spec.length = 3;
  spec.seed = seed;
  spec.record_top_k = record_top_k;
  return ProblemFamily(spec).at(parse_mismatch(mismatch));
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// Another rule, said to need the whole batch.
class AsBatch final : public Correction {
 public:
  explicit AsBatch(const std::string& name) : rule_(make_correction(name)) {}
  Scope scope() const override { return Scope::batch; }
  RecordKind needs() const override { return rule_->needs(); }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override { rule_->coefficients(batch, out); }

 private:
  std::unique_ptr<Correction> rule_;
};

/// Refuses a batch that is not told what the problem says of ages and pi_old.
class Inspector final : public Correction {
 public:
  bool needs_old_log_probs() const override { return true; }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    CHECK(batch.steps_since_old == 2);
    CHECK(batch.staleness.size() == batch.tokens());
    double moved = 0.0;
    for (size_t t = 0; t < batch.tokens(); ++t) {
      const auto k = static_cast<size_t>(batch.sampled[t]);
      CHECK(batch.staleness[t] == 3);
      moved = std::max(moved, std::abs(batch.log_p_old[t] - batch.log_p[k]));
      out.b[k] = -batch.advantage[t];
    }
    CHECK(moved > 1e-4);
  }
};

}  // namespace

TEST_CASE("audit: a correction is told ages, optimizer steps and pi_old", "[audit]") {
  ProblemSpec spec;
  spec.vocabulary = 3;
  spec.length = 2;
  spec.steps_since_old = 2;
  const ProblemFamily family(spec);
  const Problem problem = family.at(parse_mismatch("stale=3"));
  audit(Enumeration(problem), Inspector(), {});
  // Without a mismatch the sampler is pi_old.
  const Problem fresh = family.at(parse_mismatch("none"));
  CHECK(fresh.log_q == fresh.log_p_old);
  CHECK(fresh.log_q != fresh.log_p);
}

TEST_CASE("audit: untruncated sequence weights are unbiased, and nothing else is under a mismatch", "[audit]") {
  const std::string mismatch = GENERATE("noise=1.0", "stale=8", "scale=0.6", "top-p=0.9+noise=0.5");
  const bool table = GENERATE(true, false);
  CAPTURE(mismatch, table);
  const Problem problem = problem_with(mismatch, 3, table);
  const Enumeration all(problem);
  const Figures f = audit(all, *make_correction("seq-is"), {});
  CHECK(f.exact);
  CHECK(f.bias.value < kTiny);
  CHECK(f.cosine.value == Approx(1.0).epsilon(kTiny));
  CHECK(f.drift_up.value < kTiny);
  CHECK(f.variance.value > 0.0);
  CHECK(audit(all, *make_correction("grpo"), {}).bias.value > 1e-4);
  // Top-p: unbiased for the objective over the candidate sets, which is another one than that over the vocabulary.
  CHECK((f.bias_whole.value > 1e-3) == problem.truncated());
}

TEST_CASE("audit: centering with a complete head has no drift, whatever the weights", "[audit]") {
  const std::string mismatch = GENERATE("noise=0.3", "noise=1.6", "stale=12+nvfp4", "top-p=0.9+noise=1.0");
  CAPTURE(mismatch);
  const Problem problem = problem_with(mismatch, 5, GENERATE(true, false));
  const Enumeration all(problem);
  size_t centered = 0;
  for (const CorrectionInfo& info : corrections()) {
    if (!info.ratio_rule) continue;
    std::unique_ptr<Correction> rule;
    try {
      rule = make_correction("sc+" + info.name);
    } catch (const std::invalid_argument&) {  // weights that are no function of p / q
      continue;
    }
    const Figures f = audit(all, *rule, {});
    CAPTURE(info.name);
    ++centered;
    CHECK(f.drift_up.value < kTiny);
    CHECK(f.drift_down.value < kTiny);
  }
  CHECK(centered >= 4);
  CHECK(audit(all, *make_correction("sc"), {}).drift_up.value < kTiny);
  CHECK(audit(all, *make_correction("grpo"), {}).drift_up.value > 1e-3);
}

TEST_CASE("audit: centering adds nothing to untruncated token weights", "[audit]") {
  const Problem problem = problem_with("noise=1.3", 23, true, GENERATE(0, 2));
  const Enumeration all(problem);
  const std::unique_ptr<Correction> plain = make_correction("token-is"), centered = make_correction("sc+token-is");
  // Under a full record b is p_v times the advantage on every id, which the head's softmax takes away again.
  if (problem.record_top_k > 0) {
    const LaidOut with(all, all.possible(), all.advantage(), *centered);
    Coefficients b(with.batch());
    centered->coefficients(with.batch(), b);
    for (size_t t = 0; t < with.batch().tokens(); ++t) {
      for (auto k = with.batch().offsets[t]; k < with.batch().offsets[t + 1]; ++k) {
        if (k != with.batch().sampled[t]) CHECK(b.b[static_cast<size_t>(k)] == 0.0);
      }
    }
  }
  CHECK(largest_difference(expected_gradient(all, *centered), expected_gradient(all, *plain)) < kTiny);
  const Figures f = audit(all, *centered, {}), g = audit(all, *plain, {});
  CHECK(f.bias.value == Approx(g.bias.value).epsilon(kTiny));
  CHECK(f.variance.value == Approx(g.variance.value).epsilon(kTiny));
}

TEST_CASE("audit: a head that leaves out mass is centered if the trainer's tail has the sampler's shape", "[audit]") {
  Problem problem = problem_with("noise=1.0", 7, true, 2);
  CHECK(audit(Enumeration(problem), *make_correction("sc"), {}).drift_up.value > 1e-6);
  // The two least probable ids under q get p in the same proportion.
  const Enumeration before(problem);
  for (size_t row = 0; row < problem.rows(); ++row) {
    const auto record = before.record(row);
    double p_tail = 0.0, q_tail = 0.0;
    std::vector<size_t> tail;
    for (int32_t v = 0; v < problem.vocabulary; ++v) {
      if (std::find(record.begin(), record.end(), v) != record.end()) continue;
      tail.push_back(row * static_cast<size_t>(problem.vocabulary) + static_cast<size_t>(v));
      p_tail += std::exp(problem.log_p[tail.back()]);
      q_tail += std::exp(problem.log_q[tail.back()]);
    }
    for (const size_t k : tail) problem.log_p[k] = problem.log_q[k] + std::log(p_tail / q_tail);
  }
  problem.log_p_old = problem.log_p;
  check(problem);
  CHECK(audit(Enumeration(problem), *make_correction("sc"), {}).drift_up.value < kTiny);
}

TEST_CASE("audit: masking alone drifts by -sum of p_v grad log p_v out of the band", "[audit]") {
  const Problem problem = problem_with("noise=1.2", 11);
  const Enumeration all(problem);
  std::vector<double> formula(problem.entries(), 0.0);
  // The probability of reaching a row under q: the sum over the sequences that pass it, over what follows it.
  std::vector<double> reached(problem.rows(), 0.0);
  for (size_t s = 0; s < all.q().size(); ++s) {
    for (const size_t row : problem.tree.sequences()[s].rows) reached[row] += all.q()[s];
  }
  double out_of_band = 0.0;
  for (size_t k = 0; k < problem.entries(); ++k) {
    const double p = std::exp(problem.log_p[k]), r = p / std::exp(problem.log_q[k]);
    if (r >= 0.5 && r <= 5.0) continue;
    const size_t row = k / 4;
    out_of_band += reached[row] * p;
    for (size_t v = 0; v < 4; ++v) {
      formula[row * 4 + v] -= reached[row] * p * ((row * 4 + v == k) - std::exp(problem.log_p[row * 4 + v]));
    }
  }
  CHECK(out_of_band > 0.01);
  CHECK(largest_difference(expected_gradient(all, *make_correction("mis"), 1.0), formula) < kTiny);
}

TEST_CASE("audit: where q is p every unnormalized rule gives the exact gradient", "[audit]") {
  const Problem problem = problem_with(GENERATE("none", "top-p=0.9"), 13, GENERATE(true, false));
  // Under top-p q is p over the candidates by construction, to rounding.
  const Enumeration all(problem);
  REQUIRE(all.possible().size() <= kMostPairs);
  for (const CorrectionInfo& info : corrections()) {
    CAPTURE(info.name);
    const Figures f = audit(all, *make_correction(info.name), {.batch = 2});
    CHECK(f.exact);
    CHECK(f.bias.value < kTiny);
    CHECK(f.drift_up.value < kTiny);
    CHECK(f.masked.value == 0.0);
  }
}

TEST_CASE("audit: enumerated pairs agree with single sequences, and intervals of what is sampled hold both",
          "[audit]") {
  const Problem problem = problem_with("noise=0.7", 17);
  const Enumeration all(problem);
  REQUIRE(all.possible().size() <= kMostPairs);
  for (const char* name : {"mis", "sc"}) {
    CAPTURE(name);
    const Figures single = audit(all, *make_correction(name), {.batch = 2}),
                  pairs = audit(all, AsBatch(name), {.batch = 2});
    CHECK(pairs.exact);
    for (const auto member : {&Figures::bias, &Figures::variance, &Figures::error, &Figures::cosine, &Figures::drift_up,
                              &Figures::drift_down, &Figures::masked}) {
      CHECK((single.*member).value == Approx((pairs.*member).value).epsilon(kTiny).margin(kTiny));
    }
    const Figures few = audit(all, *make_correction(name), {.batch = 16});
    const Figures sampled = audit(all, AsBatch(name), {.batch = 16, .sampled_batches = 400, .seed = 1});
    CHECK_FALSE(sampled.exact);
    for (const auto member : {&Figures::bias, &Figures::variance, &Figures::error, &Figures::cosine, &Figures::drift_up,
                              &Figures::masked}) {
      const Figure& figure = sampled.*member;
      // Twice the interval: 95 % of one would fail for one seed in three over these figures.
      CHECK(std::abs(figure.value - (few.*member).value) <= 2.0 * figure.half_width + kTiny);
      CHECK(figure.half_width < 0.2);
    }
  }
}

TEST_CASE("audit: figures are those of their definitions, summed without any of the engine's arrays", "[audit]") {
  const Problem problem = problem_with("noise=0.8", 19);
  const Enumeration all(problem);
  const std::vector<double> exact = all.exact_gradient();
  const double norm = inner(problem, exact, exact);
  std::vector<double> mean(problem.entries(), 0.0);
  double second = 0.0;
  for (size_t s = 0; s < all.q().size(); ++s) {
    const Tree::Sequence& sequence = problem.tree.sequences()[s];
    std::vector<double> g(problem.entries(), 0.0);
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      const size_t at = sequence.rows[t] * 4, y = at + static_cast<size_t>(sequence.tokens[t]);
      const double r = std::exp(problem.log_p[y] - problem.log_q[y]);
      for (size_t v = at; v < at + 4; ++v) {
        g[v] += std::min(r, 2.0) * (problem.reward[s] - problem.baseline) * ((v == y) - std::exp(problem.log_p[v]));
      }
    }
    for (size_t v = 0; v < g.size(); ++v) mean[v] += all.q()[s] * g[v], second += all.q()[s] * g[v] * g[v];
  }
  double bias = 0.0, squared = 0.0, along = 0.0;
  for (size_t v = 0; v < mean.size(); ++v) {
    bias += std::pow(mean[v] - exact[v], 2);
    squared += mean[v] * mean[v];
    along += mean[v] * exact[v];
  }
  const Figures f = audit(all, *make_correction("tis"), {.batch = 32});
  CHECK(f.bias.value == Approx(bias / norm).epsilon(kTiny));
  CHECK(f.variance.value == Approx((second - squared) / 32 / norm).epsilon(kTiny));
  CHECK(f.error.value == Approx(bias / norm + (second - squared) / 32 / norm).epsilon(kTiny));
  CHECK(f.cosine.value == Approx(along / std::sqrt(squared * norm)).epsilon(kTiny));
}

}  // namespace motley::algos::audit
