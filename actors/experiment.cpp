#include "actors/experiment.h"

#include <algorithm>
#include <stdexcept>

namespace motley {
namespace {

kernels::NumericProfile profile_of(const std::string& name, const std::string& kernels) {
  const kernels::NumericProfile* found = kernels::find_profile(name);
  if (!found) throw std::invalid_argument("unknown numeric profile '" + name + "'");
  kernels::NumericProfile profile = *found;
  profile.invariant = kernels != "vendor";
  return profile;
}

}  // namespace

kernels::NumericProfile Experiment::trainer_profile() const { return profile_of(trainer.profile, trainer.kernels); }

kernels::NumericProfile Experiment::group_profile(const SamplerGroupOptions& group) const {
  return profile_of(group.profile == "trainer" ? trainer.profile : group.profile, group.kernels);
}

algos::CorrectionParameters Experiment::correction_parameters() const {
  algos::CorrectionParameters parameters = algo.parameters;
  for (const SamplerGroupOptions& group : samplers) {
    for (const auto& [name, value] : group.parameters) parameters[name + "@" + group.name] = value;
  }
  return parameters;
}

RecordKind Experiment::needed_records() const {
  RecordKind needed = algos::make_correction(algo.correction, correction_parameters())->needs();
  if (probe.drift_every > 0)
    for (const std::string& name : probe.drift) needed = std::max(needed, algos::make_correction(name)->needs());
  return needed;
}

RecordKind Experiment::record_kind() const {
  // A truncated distribution is its candidate set: that is the whole support, so it serves every correction.
  if (sampling.top_p < 1.0 || sampling.top_k > 0) return RecordKind::candidates;
  if (sampling.record == "sampled") return RecordKind::sampled;
  if (sampling.record == "top_k") return RecordKind::top_k;
  if (sampling.record == "full") return RecordKind::full;
  switch (needed_records()) {
    case RecordKind::sampled:
      return RecordKind::sampled;
    case RecordKind::full:
      return RecordKind::full;
    default:
      return RecordKind::top_k;
  }
}

algos::LearnerConfig Experiment::learner_config() const {
  const int64_t steps_per_update = algo.minibatches * algo.epochs;
  algos::LearnerConfig config;
  config.correction = algo.correction;
  config.correction_parameters = correction_parameters();
  config.advantage = algo.advantage;
  config.advantage_level = algo.advantage_level;
  config.baseline_decay = algo.baseline_decay;
  config.reduction = algo.reduction;
  config.denominator = algo.denominator;
  config.max_tokens = sampling.max_tokens;
  config.overlong = algo.overlong;
  config.overlong_tokens = algo.overlong_tokens;
  config.kl = algo.kl;
  config.kl_coefficient = algo.kl_coefficient;
  config.kl_ratio_cap = algo.kl_ratio_cap;
  config.entropy_coefficient = algo.entropy_coefficient;
  config.minibatches = algo.minibatches;
  config.epochs = algo.epochs;
  config.profile = trainer_profile();
  config.kv_format = config.profile.kv_cache;
  config.optimizer = {.lr = trainer.lr,
                      .beta1 = trainer.beta1,
                      .beta2 = trainer.beta2,
                      .eps = trainer.eps,
                      .weight_decay = trainer.weight_decay,
                      .clip_norm = trainer.clip_norm,
                      .schedule = trainer.schedule,
                      .warmup_steps = trainer.warmup_updates * steps_per_update,
                      .total_steps = run.updates * steps_per_update};
  config.loss_scale.enabled = config.profile.output == kernels::DType::f16;
  config.loss_scale.scale = trainer.loss_scale;
  config.loss_scale.growth_interval = trainer.loss_scale_growth;
  config.checkpoint_activations = trainer.checkpoint_activations;
  config.seed = seed;
  for (const SamplerGroupOptions& group : samplers)
    config.sampler_formats[group.name] = kernels::weight_format_name(group_profile(group));
  return config;
}

}  // namespace motley
