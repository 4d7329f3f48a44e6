// Probes in whole runs.
#include "actors/probes.h"

#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

Experiment probed_experiment() {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 6;
  experiment.run.checkpoint_every = 3;
  experiment.eval.every = 0;
  experiment.warmstart.steps = 40;
  experiment.warmstart.batch = 32;
  experiment.warmstart.lr = 1e-2;
  experiment.warmstart.cache = false;
  experiment.samplers[0].staleness = std::pair<int64_t, int64_t>(0, 3);
  experiment.probe.staleness_every = 1;
  experiment.probe.staleness_samples = 5;
  return experiment;
}

TEST_CASE("stale samplers of the trainer's own numerics: the mismatch is exactly 0, all is staleness") {
  Experiment experiment = probed_experiment();
  experiment.trainer.profile = GENERATE("fp32", "bf16");
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  double stale = 0;
  for (size_t update = 1; update < outcome.seen.rows.size(); ++update) {
    const algos::Metrics& m = outcome.seen.rows[update].second;
    CHECK(m.at("probe/tokens") > 0.0);
    CHECK(m.at("probe/tokens_too_old") == 0.0);
    CHECK(m.at("probe/kl/mismatch") == 0.0);
    CHECK(m.at("probe/k3/mismatch") == 0.0);
    CHECK(m.at("probe/kl/staleness") == m.at("probe/kl/sampler_trainer"));
    CHECK(m.at("group/one/probe/kl/staleness") == m.at("probe/kl/staleness"));
    CHECK(m.contains("time/probe"));
    stale += m.at("probe/k3/staleness");
  }
  CHECK(stale > 0.0);
}

TEST_CASE("fresh samplers of another format: all is mismatch") {
  Experiment experiment = probed_experiment();
  experiment.samplers[0].staleness.reset();
  experiment.samplers[0].profile = "h100-fp8";
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  for (size_t update = 1; update < outcome.seen.rows.size(); ++update) {
    const algos::Metrics& m = outcome.seen.rows[update].second;
    CHECK(m.at("probe/kl/staleness") == 0.0);
    CHECK(m.at("probe/k3/mismatch") > 0.0);
  }
}

TEST_CASE("probes come when they are due, and may look at what imposed staleness keeps anyway") {
  Experiment experiment = probed_experiment();
  experiment.probe.versions = 1;
  experiment.samplers[0].staleness = std::pair<int64_t, int64_t>(2, 2);
  experiment.probe.staleness_every = 3;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  for (size_t update = 1; update < outcome.seen.rows.size(); ++update)
    CHECK(outcome.seen.rows[update].second.contains("probe/tokens") == (update % 3 == 0));
  CHECK(outcome.seen.rows[6].second.at("probe/tokens_too_old") == 0.0);
  CHECK(probed_versions(experiment.probe) == 1);
  experiment.probe.staleness_every = 0;
  CHECK(probed_versions(experiment.probe) == 0);
}

TEST_CASE("probes change nothing of the run, and a resumed run repeats them") {
  Experiment experiment = probed_experiment();
  experiment.samplers[0].profile = "b200-nvfp4";
  experiment.sampling.record = "top_k";
  experiment.probe.drift_every = 2;
  experiment.probe.drift = {"grpo", "sc+mis"};
  TemporaryFolder with, without;
  const Outcome probed = run_tiny(experiment, with.path());
  const algos::Metrics& last = probed.seen.rows[6].second;
  CHECK(last.contains("drift/grpo/squared_norm"));
  CHECK(last.contains("drift/sc+mis/noise"));
  CHECK_FALSE(probed.seen.rows[5].second.contains("drift/grpo/squared_norm"));

  Experiment plain = experiment;
  plain.probe.staleness_every = plain.probe.drift_every = 0;
  const Outcome unprobed = run_tiny(plain, without.path());
  CHECK(load_checkpoint(unprobed.summary.checkpoint).parameters.fingerprints() ==
        load_checkpoint(probed.summary.checkpoint).parameters.fingerprints());
  for (const auto& [name, value] : unprobed.seen.rows[6].second) {
    CAPTURE(name);
    if (name.find("time/") == std::string::npos && name.find("cost/") == std::string::npos)
      CHECK(last.at(name) == value);
  }

  TemporaryFolder parts;
  RunSetup setup;
  setup.stop_after = 3;
  const Outcome first = run_tiny(experiment, parts.path(), setup);
  setup = {};
  setup.resume = first.summary.checkpoint;
  const Outcome second = run_tiny(experiment, parts.path(), setup);
  auto joined = first.seen.rows;
  joined.insert(joined.end(), second.seen.rows.begin(), second.seen.rows.end());
  CHECK(clockless(joined) == clockless(probed.seen.rows));
}

TEST_CASE("a drift probe takes the run's parameters for the pieces that it shares with the run's correction") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 1;  // the weights that are probed are the starting ones
  experiment.eval.every = 0;
  experiment.samplers[0].profile = "b200-nvfp4";
  experiment.algo.correction = "mis+veto";
  experiment.probe.drift_every = 1;
  experiment.probe.drift = {"mis", "tis"};
  const auto drift = [&](const algos::CorrectionParameters& parameters, const algos::CorrectionParameters& of_group) {
    experiment.algo.parameters = parameters;
    experiment.samplers[0].parameters = of_group;
    TemporaryFolder folder;
    const algos::Metrics row = run_tiny(experiment, folder.path()).seen.rows.at(1).second;
    return std::pair(row.at("drift/mis/squared_norm"), row.at("drift/tis/squared_norm"));
  };
  const auto wide = drift({}, {}), narrow = drift({{"mis.low", 0.99}, {"mis.high", 1.01}}, {});
  CHECK(narrow.first != wide.first);
  CHECK(narrow.second == wide.second);
  CHECK(drift({}, {{"mis.low", 0.99}, {"mis.high", 1.01}}) == narrow);
}

TEST_CASE("an asynchronous run's probe counts what left the ring") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 6;
  experiment.eval.every = 0;
  experiment.probe.staleness_every = 1;
  experiment.probe.versions = 1;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  for (size_t update = 1; update < outcome.seen.rows.size(); ++update) {
    const algos::Metrics& m = outcome.seen.rows[update].second;
    CHECK(m.at("probe/tokens") + m.at("probe/tokens_too_old") > 0.0);
    if (m.at("staleness/max") <= 1.0) CHECK(m.at("probe/tokens_too_old") == 0.0);
  }
}

}  // namespace
}  // namespace motley::actors
