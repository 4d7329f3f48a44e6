// The whole learner's gradient: against finite differences of the surrogate with frozen coefficients, for every split
// into micro-batches, and alone or packed between others.
#include <catch2/catch.hpp>

#include "kernels/parallel.h"
#include "tests/algos/dense_surrogate.h"

namespace motley::algos {
namespace {

using reference::largest;
using reference::largest_difference;

TEST_CASE("the learner's gradient is that of the dense surrogate with frozen coefficients") {
  const auto correction = GENERATE(as<std::string>{}, "grpo", "mis", "sc", "sc+mis", "tis");
  const auto style = GENERATE(from_range(kRecordStyles));
  CAPTURE(correction, style);
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes(style);
  for (size_t i = 0; i < 2; ++i) batch[i].temperature = 0.8;  // and 1 in the second group
  const std::vector<double> found = learner_gradient(model, learner_config(correction, DType::f64), batch);

  Parameters parameters = masters(model, DType::f64);
  DenseSurrogate surrogate(model, batch, correction);
  surrogate.freeze(parameters);
  size_t first = 0;
  for (const std::string& name : parameters.names()) {
    Tensor& tensor = parameters.at(name);
    const std::span<double> values = tensor.span<double>();
    for (const size_t i : {size_t{0}, values.size() / 2, values.size() - 1}) {
      // Central differences err by h^2 f'''/6 and by 1e-16 f / h; both are below 1e-8 here, where gradients are ~1e-2.
      const double h = 1e-5, kept = values[i];
      values[i] = kept + h;
      const double up = surrogate.value(parameters);
      values[i] = kept - h;
      const double down = surrogate.value(parameters);
      values[i] = kept;
      CAPTURE(name, i);
      CHECK(found[first + i] == Approx((up - down) / (2 * h)).margin(1e-6 * largest(found) + 1e-9));
    }
    first += values.size();
  }
}

TEST_CASE("no split into micro-batches changes a bit of the gradient or the loss") {
  const auto type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const auto correction = GENERATE(as<std::string>{}, "grpo", "sc+mis");
  const auto reduction = GENERATE(as<std::string>{}, "token_mean", "prompt_mean", "sequence_mean", "constant");
  CAPTURE(kernels::dtype_name(type), correction, reduction);
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> batch = four_episodes("top_k");
  LearnerConfig config = learner_config(correction, type);
  config.reduction = reduction;
  std::vector<double> whole;
  Metrics metrics;
  for (const int64_t tokens : {1000, 16, 1}) {  // lengths 4, 5, 7, 14: one piece, two pieces, four
    config.micro_batch_tokens = tokens;
    Parameters parameters = masters(model, type);
    Learner learner(model, parameters, config);
    const Metrics found = learner.gradient(batch);
    if (tokens == 1000) {
      whole = gradients(parameters);
      metrics = found;
      REQUIRE(largest(whole) > 1e-4);
    }
    CHECK(gradients(parameters) == whole);
    CHECK(found == metrics);
  }
}

TEST_CASE("a sample alone and packed between others: the same bits") {
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes("candidates");
  batch[2].sampler = std::string("x");
  LearnerConfig config = learner_config("sc+mis", DType::bf16);
  const auto kl = [&](const std::vector<Trajectory>& samples) {
    Parameters parameters = masters(model);
    Learner learner(model, parameters, config);
    return learner.gradient(samples).at("group/x/kl/sampler_trainer");
  };
  const double alone = kl({batch[2]});
  CHECK(kl(batch) == alone);
  CHECK(kl({batch[3], batch[2], batch[0]}) == alone);
  CHECK(alone != 0.0);
}

TEST_CASE("a sample's loss alone and packed between others: the same bits") {
  const auto type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const auto correction = GENERATE(as<std::string>{}, "grpo", "sc+mis");
  CAPTURE(kernels::dtype_name(type), correction);
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> four = four_episodes("top_k");
  LearnerConfig config = learner_config(correction, type);
  config.reduction = "constant";  // the sum over samples, times a constant over their number
  const auto loss = [&](const std::vector<Trajectory>& samples) {
    Parameters parameters = masters(model, type);
    Learner learner(model, parameters, config);
    return learner.gradient(samples).at("loss") * static_cast<double>(samples.size());
  };
  const double pair = loss({four[2], four[3]});
  CHECK(pair != 0.0);
  CHECK(loss({four[3], four[2]}) == pair);
  // Two samples of a group without advantage add 0 to the sum; 4 / 2 is exact. They may not add anything else either.
  std::vector<Trajectory> between{four[0], four[2], four[1], four[3]};
  between[0].reward = between[2].reward = 0.5;
  CHECK(loss(between) == pair);
  // With an advantage they are packed into the same micro-batch and add what they have alone.
  const double others = loss({four[0], four[1]}), all = loss(four);
  CHECK(all == Approx(pair + others).epsilon(1e-14));
}

TEST_CASE("samples without an advantage count in the denominator and change nothing else") {
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes("top_k");
  const LearnerConfig config = [] {
    LearnerConfig c = learner_config("sc", DType::f64);
    c.reduction = "constant";
    return c;
  }();
  const std::vector<double> four = learner_gradient(model, config, batch);
  std::vector<Trajectory> more = batch;
  for (Trajectory extra : batch) {
    extra.group = 99;
    extra.reward = 0.1;
    more.push_back(extra);
  }
  std::vector<double> eight = learner_gradient(model, config, more);
  for (double& x : eight) x *= 2.0;  // a constant denominator over twice the samples; powers of two are exact
  CHECK(largest_difference(four, eight) <= 1e-15 * largest(four));
}

TEST_CASE("the number of threads changes no bit") {
  TransformerConfig model = tiny_model();
  model.width = 64;
  model.head_dim = 32;
  model.ffn = 192;
  LearnerConfig config = learner_config("sc+mis", DType::bf16);
  std::vector<Trajectory> batch;
  for (uint64_t g = 0; g < 40; ++g) {
    for (Trajectory t : four_episodes("top_k", 60 + g)) {
      t.group += 10 * g;
      batch.push_back(t);
    }
  }
  const auto with_threads = [&](int threads) {
    kernels::set_compute_threads(threads);
    std::vector<double> result = learner_gradient(model, config, batch);
    kernels::set_compute_threads(1);
    return result;
  };
  const std::vector<double> one = with_threads(1);
  CHECK(with_threads(2) == one);
  CHECK(with_threads(4) == one);
}

TEST_CASE("the same tokens scored twice give the same bits") {
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> batch = four_episodes("full");
  const LearnerConfig config = learner_config("sc+mis", DType::bf16);
  Parameters parameters = masters(model);
  Learner learner(model, parameters, config);
  const Metrics first = learner.gradient(batch);
  const std::vector<double> once = gradients(parameters);
  parameters.zero_grad();
  CHECK(learner.gradient(batch) == first);
  CHECK(gradients(parameters) == once);
}

}  // namespace
}  // namespace motley::algos
