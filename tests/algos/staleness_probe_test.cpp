// The split of log q - log p into mismatch and staleness.
#include "algos/staleness_probe.h"

#include <catch2/catch.hpp>

#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

/// Three versions of a small model, the newest of which is 7.
struct Versions {
  TransformerConfig model = tiny_model();
  kernels::NumericProfile profile = plain_profile(DType::f64);
  std::map<uint64_t, Parameters> kept;
  TrainerPass pass{model, profile, false};
  std::vector<Trajectory> batch = four_episodes("top_k");
  Versions() {
    for (const uint64_t version : {5u, 6u, 7u})
      kept.emplace(version, Parameters::initialize(model, version, DType::f64));
    for (Trajectory& sample : batch) {
      sample.batch_version = 7;
      for (uint64_t& version : sample.records.versions) version = 7;
    }
  }
  Metrics probe(std::vector<size_t> samples = {0, 1, 2, 3}, int64_t max_tokens = 1000) const {
    const auto weights = [this](uint64_t version) {
      const auto found = kept.find(version);
      return found == kept.end() ? nullptr : &found->second;
    };
    return staleness_probe(pass, batch, samples, weights, max_tokens);
  }
  /// Records as a sampler of the trainer's profile and of each token's version would have them.
  void sample_exactly() {
    for (auto& [version, parameters] : kept) {
      const auto log_p = pass.drawn_log_probs(parameters, batch, std::vector<size_t>{0, 1, 2, 3}, 1000);
      for (size_t i = 0; i < batch.size(); ++i)
        for (size_t t = 0; t < batch[i].records.size(); ++t)
          if (batch[i].records.versions[t] == version) batch[i].records.log_q[t] = static_cast<float>(log_p[i][t]);
    }
  }
};

TEST_CASE("the parts add up, and are the hand-made differences") {
  Versions v;
  v.batch[1].records.versions = {5, 6};
  v.batch[3].records.versions = {5, 5, 5, 6, 6, 6, 6, 7, 7, 7};
  const Metrics m = v.probe();
  double mismatch = 0, staleness = 0, k3 = 0;
  const std::vector<size_t> all{0, 1, 2, 3};
  const auto now = v.pass.drawn_log_probs(v.kept.at(7), v.batch, all, 1000);
  for (size_t i = 0; i < 4; ++i)
    for (size_t t = 0; t < v.batch[i].records.size(); ++t) {
      const Parameters& then = v.kept.at(v.batch[i].records.versions[t]);
      const double sampled = v.pass.drawn_log_probs(then, v.batch, all, 1000)[i][t], q = v.batch[i].records.log_q[t];
      mismatch += q - sampled;
      staleness += sampled - now[i][t];
      k3 += std::exp(sampled - q) - 1 - (sampled - q);
    }
  CHECK(m.at("probe/tokens") == 16);
  CHECK(m.at("probe/tokens_too_old") == 0);
  CHECK(m.at("probe/kl/mismatch") == Approx(mismatch / 16));
  CHECK(m.at("probe/kl/staleness") == Approx(staleness / 16));
  CHECK(m.at("probe/k3/mismatch") == Approx(k3 / 16));
  CHECK(std::abs(m.at("probe/kl/sampler_trainer") - m.at("probe/kl/mismatch") - m.at("probe/kl/staleness")) < 1e-14);
  CHECK(m.at("group/a/probe/kl/mismatch") == m.at("probe/kl/mismatch"));
  CHECK(std::abs(m.at("probe/kl/staleness")) > 1e-3);
  CHECK(v.probe({0, 1, 2, 3}, 1) == m);  // micro-batches change no bit
}

TEST_CASE("fresh weights have no staleness, and a sampler of the trainer's own numerics no mismatch") {
  Versions v;
  const Metrics fresh = v.probe();
  CHECK(fresh.at("probe/kl/staleness") == 0.0);
  CHECK(fresh.at("probe/k3/staleness") == 0.0);
  CHECK(fresh.at("probe/kl/mismatch") == fresh.at("probe/kl/sampler_trainer"));
  v.batch[3].records.versions = {5, 5, 5, 6, 6, 6, 6, 7, 7, 7};
  v.batch[2].records.versions = {5, 5, 5};
  v.sample_exactly();
  const Metrics exact = v.probe();
  CHECK(std::abs(exact.at("probe/kl/mismatch")) < 2e-7);  // log q is recorded in float
  CHECK(exact.at("probe/k3/mismatch") < 1e-13);
  CHECK(exact.at("probe/k3/staleness") > 1e-3);
}

TEST_CASE("tokens whose weights are kept no more are counted and left out") {
  Versions v;
  v.batch[3].records.versions = {5, 5, 5, 6, 6, 6, 6, 7, 7, 7};
  v.batch[2].sampler = "b";
  v.kept.erase(5);
  const Metrics m = v.probe();
  CHECK(m.at("probe/tokens") == 13);
  CHECK(m.at("probe/tokens_too_old") == 3);
  CHECK(m.at("group/a/probe/tokens") == 10);
  CHECK(m.at("group/b/probe/tokens_too_old") == 0);
  for (uint64_t& version : v.batch[2].records.versions) version = 5;
  const Metrics none = v.probe({2});
  CHECK(none == Metrics{{"probe/tokens", 0},
                        {"probe/tokens_too_old", 3},
                        {"group/b/probe/tokens", 0},
                        {"group/b/probe/tokens_too_old", 3}});
  CHECK(v.probe({}) == Metrics{{"probe/tokens", 0}, {"probe/tokens_too_old", 0}});
}

TEST_CASE("probe samples are usable ones, spread over the batch") {
  std::vector<Trajectory> batch;
  for (uint64_t seed = 0; seed < 5; ++seed)
    for (Trajectory& sample : four_episodes("sampled", seed)) batch.push_back(std::move(sample));
  batch[0].failure = "died";
  batch[7].records.log_q[0] = std::nanf("");
  const TransformerConfig model = tiny_model();
  const auto chosen = [&](int64_t wanted) { return probe_samples(batch, wanted, model.vocabulary, 32); };
  CHECK(chosen(3) == std::vector<size_t>{1, 8, 14});
  CHECK(chosen(0).empty());
  CHECK(chosen(100).size() == 18);
  CHECK(probe_samples({}, 3, model.vocabulary, 32).empty());
}

}  // namespace
}  // namespace motley::algos
