#include "actors/local_trainer.h"

#include <algorithm>

#include "actors/policy/learner_state.h"
#include "actors/weight_history.h"

namespace motley::actors {

size_t history_length(const Experiment& experiment) {
  int64_t length = probed_versions(experiment.probe);
  for (const SamplerGroupOptions& group : experiment.samplers)
    if (!experiment.run.async && group.staleness) length = std::max(length, group.staleness->second);
  return static_cast<size_t>(length);
}

LocalTrainer::LocalTrainer(const Experiment& experiment, const TransformerConfig& model, StartingPointPtr start,
                           ParametersPtr weights)
    : start_(std::move(start)),
      learner_(model, start_->parameters, experiment.learner_config()),
      probes_(experiment, model, start_->parameters),
      version_(start_->state.version),
      snapshot_(std::move(weights)),
      history_(std::move(start_->history)),
      history_length_(history_length(experiment)) {
  learner_.set_steps(static_cast<int64_t>(version_));
  if (start_->optimizer) learner_.optimizer().restore(*start_->optimizer);
  start_->optimizer.reset();
  learner_.set_reference(start_->reference);
  learner_.restore(learner_state(start_->state));
}

Trainer::Trained LocalTrainer::step(const std::vector<algos::Trajectory>& batch) {
  Trained trained;
  {
    const kernels::ComputeLease lease(compute_);
    trained.metrics = probes_.measure(version_ + 1, batch, [this](uint64_t version) { return weights_of(version); });
    trained.metrics.merge(learner_.step(batch));
  }
  compute_.rest();
  ++version_;
  history_.push_back(std::move(snapshot_));
  while (history_.size() > history_length_) history_.erase(history_.begin());
  snapshot_ = std::make_shared<const Parameters>(start_->parameters.clone(Device{}));
  trained.weights = snapshot_;
  return trained;
}

Trainer::State LocalTrainer::state() {
  State state{learner_.optimizer().state(), learner_.state(), snapshot_};
  add_history(state.optimizer, history_);
  return state;
}

const Parameters* LocalTrainer::weights_of(uint64_t version) const {
  if (version == version_) return snapshot_.get();
  const uint64_t age = version_ - version;  // far above the history's length for a version to come
  return age <= history_.size() ? history_[history_.size() - age].get() : nullptr;
}

}  // namespace motley::actors
