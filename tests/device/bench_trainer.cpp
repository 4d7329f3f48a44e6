// Tokens per second of a training step: forward, cross-entropy on all tokens, backward, AdamW. trainer_torch.py does
// the same step in PyTorch.
#include "algos/learner.h"
#include "app/bench.h"
#include "tests/device/bench.h"
#include "tests/device/qwen3.h"

namespace motley::device_bench {

namespace {

Row timed_step(const Setting& setting, const TransformerConfig& model, const kernels::NumericProfile& profile) {
  const int64_t sequences = setting.tiny ? 2 : 4, length = setting.tiny ? 4 : 1024;
  Parameters parameters = app::bench_parameters(model).clone(setting.device);
  algos::LearnerConfig config;
  config.profile = profile;
  config.kv_format = profile.kv_cache;
  config.micro_batch_tokens = sequences * length;
  config.optimizer.lr = 1e-4;
  algos::Learner learner(model, parameters, config);
  const auto batch = app::bench_batch(sequences, length, model.vocabulary);
  for (int i = 0; i < (setting.tiny ? 1 : 2); ++i) learner.supervised_step(batch);
  finish(setting.device);
  const int steps = setting.tiny ? 1 : 3;
  const double begin = seconds_now();
  for (int i = 0; i < steps; ++i) learner.supervised_step(batch);
  finish(setting.device);
  Row row{"trainer", profile.name + (profile.invariant ? " invariant, " : " vendor, ") + std::to_string(sequences) +
                         " x " + std::to_string(length)};
  row.seconds = (seconds_now() - begin) / steps;
  row.tokens = static_cast<double>(sequences * length);
  row.flop = 6.0 * static_cast<double>(parameters.count()) * row.tokens;  // of the products alone
  row.peak_tflops = setting.card != nullptr ? setting.card->bf16 : 0.0;
  return row;
}

}  // namespace

void trainer(const Setting& setting, const Report& report) {
  const TransformerConfig model = qwen3(setting.tiny);
  for (const bool invariant : {false, true}) {
    kernels::NumericProfile profile = *kernels::find_profile("bf16");
    profile.invariant = invariant;
    report(timed_step(setting, model, profile));
  }
}

}  // namespace motley::device_bench
