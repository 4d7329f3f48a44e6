// The learner under every piece and some sums: how a step is cut into micro-batches changes no bit.
#include <catch2/catch.hpp>

#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> all{"sc+tis", "sc+mis+veto", "ais+veto", "seq-tis+opsm"};
  for (const CorrectionInfo& info : corrections()) all.push_back(info.name);
  return all;
}

TEST_CASE("no split into micro-batches changes a bit, under any piece") {
  const auto name = GENERATE(from_range(names()));
  CAPTURE(name);
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> batch = four_episodes("top_k");
  std::vector<double> whole;
  Metrics metrics;
  for (const int64_t tokens : {1000, 16, 1}) {  // lengths 4, 5, 7, 14: one piece, two pieces, four
    LearnerConfig config = learner_config(name);
    config.micro_batch_tokens = tokens;
    Parameters parameters = masters(model);
    const Metrics found = Learner(model, parameters, config).gradient(batch);
    if (tokens == 1000) {
      whole = gradients(parameters);
      metrics = found;
    }
    CHECK(gradients(parameters) == whole);
    CHECK(found == metrics);
  }
}

TEST_CASE("clips on pi_old train over several epochs") {
  for (const char* name : {"ppo-clip", "gspo", "cispo", "minirl", "decoupled"}) {
    CAPTURE(name);
    const TransformerConfig model = tiny_model();
    LearnerConfig config = learner_config(name);
    config.optimizer.lr = 0.1;
    config.epochs = 4;
    Parameters parameters = masters(model);
    Learner learner(model, parameters, config);
    learner.step(four_episodes("top_k"));
    for (const std::string& tensor : parameters.names()) {
      for (const double x : parameters.at(tensor).to_doubles()) REQUIRE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace motley::algos
