#include "algos/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "algos/advantage.h"
#include "algos/minibatch_plan.h"
#include "algos/nearest_name.h"
#include "algos/reference_kl.h"
#include "algos/reward_shaping.h"
#include "algos/step_gradient.h"

namespace motley::algos {
namespace {

void check_supported(const LearnerConfig& config) {
  if (config.minibatches < 1 || config.epochs < 1 || config.micro_batch_tokens < 1) {
    throw std::invalid_argument("minibatches, epochs and micro_batch_tokens must be at least 1");
  }
  const auto known = [](const char* what, const std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw std::invalid_argument(unknown_name_message(what, name, names));
  };
  known("advantage", advantage_names(), config.advantage);
  known("advantage_level", advantage_level_names(), config.advantage_level);
  if (config.advantage_level == "turn" && !compares_returns(config.advantage))
    throw std::invalid_argument("advantage \"" + config.advantage + "\" does not compare turns");
  known("reduction", reduction_names(), config.reduction);
  known("denominator", denominator_names(), config.denominator);
  known("overlong", overlong_names(), config.overlong);
  known("kl", kl_names(), config.kl);
}

LearnerConfig with_kv_format(LearnerConfig config) {
  config.profile.kv_cache = config.kv_format;
  return config;
}

}  // namespace

struct Learner::State {
  TransformerConfig model;
  Parameters& parameters;
  LearnerConfig config;
  std::unique_ptr<Correction> correction;
  TrainerPass pass;
  AdamW optimizer;
  MovingBaseline baseline;
  std::shared_ptr<const Parameters> reference;
  int64_t steps = 0;

  State(const TransformerConfig& model_config, Parameters& masters, LearnerConfig learner_config,
        std::unique_ptr<Correction> rule)
      : model(model_config.resolved()),
        parameters(masters),
        config(with_kv_format(std::move(learner_config))),
        correction(std::move(rule)),
        pass(model, config.profile, config.checkpoint_activations, masters.device()),
        optimizer(masters, config.optimizer, config.loss_scale),
        baseline(config.baseline_decay) {
    check_supported(config);
    parameters.set_requires_grad(true);
  }

  Metrics update(const std::vector<Trajectory>& batch, bool train);
  Metrics supervised(const std::vector<Demonstration>& batch);

 private:
  using Samples = std::vector<std::vector<size_t>>;  // by optimizer step
  /// Scores what is needed before the first step: the reference policy, and pi_old of the samples that the first step
  /// does not score itself. Writes the seconds that it took.
  void score_ahead(TrainingBatch& batch, const Samples& plan, Metrics& metrics) const;
  /// The turns of a sample as its group is compared, one for the whole sample unless turns are: rewards with their
  /// shaping terms, each where the tokens stand that it is for.
  std::vector<Turn> compared_turns(const TrainingBatch& batch, size_t sample, double& penalties) const;
  /// Rewards with their shaping terms, and from them advantages. Writes what the shaping came to.
  void compare(TrainingBatch& batch, bool move_baseline, Metrics& metrics);
  void take_steps(TrainingBatch& batch, const Samples& plan, BatchScores& scores, Metrics& metrics);
  double loss_scale() const { return optimizer.loss_scale().enabled ? optimizer.loss_scale().scale : 1.0; }
};

namespace {

/// Runs `pass` and gives the seconds that it took.
template <class Pass>
double seconds(const Pass& pass) {
  const auto start = std::chrono::steady_clock::now();
  pass();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void Learner::State::score_ahead(TrainingBatch& batch, const Samples& plan, Metrics& metrics) const {
  const std::span<const Trajectory> samples = batch.samples;
  std::vector<size_t> unscored = batch.selection.kept;
  if (unscored.empty()) return;
  if (config.kl != "none") {
    if (!reference) throw std::logic_error("a KL term needs a reference policy");
    metrics["time/reference"] = seconds([&] {
      batch.log_p_reference = pass.drawn_log_probs(*reference, samples, unscored, config.micro_batch_tokens);
    });
  }
  if (config.kl != "k1") {  // which wants the whole batch before it is compared
    if (!correction->needs_old_log_probs()) return;
    std::vector<bool> in_first_step(samples.size(), false);
    for (const size_t i : plan.front()) in_first_step[i] = true;
    std::erase_if(unscored, [&](size_t i) { return in_first_step[i]; });
    if (unscored.empty()) return;
  }
  metrics["time/pi_old"] = seconds(
      [&] { batch.log_p_old = pass.drawn_log_probs(parameters, samples, unscored, config.micro_batch_tokens); });
}

std::vector<Turn> Learner::State::compared_turns(const TrainingBatch& batch, size_t sample, double& penalties) const {
  const std::vector<Turn> turns = batch.samples[sample].all_turns();
  const bool by_turn = config.advantage_level == "turn";
  std::vector<Turn> compared = by_turn ? turns : std::vector<Turn>{batch.samples[sample].as_one_turn()};
  for (size_t k = 0, t = 0; k < turns.size(); ++k) {
    double& reward = compared[by_turn ? k : 0].reward;
    if (config.overlong == "penalty") {
      const double penalty = overlong_penalty(turns[k].tokens, config.max_tokens, config.overlong_tokens);
      reward += penalty;
      penalties += penalty;
    }
    for (const size_t end = t + turns[k].tokens; t < end; ++t) {
      if (config.kl != "k1") continue;
      const double log_ratio = batch.log_p_old[sample][t] - batch.log_p_reference[sample][t];
      reward -= config.kl_coefficient * bounded_log_ratio(log_ratio);
    }
  }
  return compared;
}

void Learner::State::compare(TrainingBatch& batch, bool move_baseline, Metrics& metrics) {
  std::vector<std::vector<Turn>> turns(batch.samples.size());
  double sum = 0.0, penalties = 0.0, filtered = 0.0;
  for (const size_t i : batch.selection.kept) {
    turns[i] = compared_turns(batch, i, penalties);
    double reward = 0.0;
    for (const Turn& turn : turns[i]) reward += turn.reward;
    sum += reward;
  }
  const auto count = static_cast<double>(batch.selection.kept.size());
  const double mean = count > 0.0 ? sum / count : 0.0;
  set_advantages(batch.selection, config.advantage, turns, baseline.value(mean));
  if (config.overlong == "filter") filter_truncated(batch.selection, batch.samples);
  for (const uint8_t one : batch.selection.filtered) filtered += one;
  if (count == 0.0) return;
  if (config.overlong == "penalty") metrics["overlong/penalty"] = penalties / count;
  if (config.overlong == "filter") metrics["overlong/filtered"] = filtered / count;
  if (config.overlong == "penalty" || config.kl == "k1") metrics["reward/shaped"] = mean;
  if (compares_group(config.advantage)) return;
  metrics["advantage/baseline"] = baseline.value(mean);
  if (move_baseline) baseline.add(mean);
}

void Learner::State::take_steps(TrainingBatch& batch, const Samples& plan, BatchScores& scores, Metrics& metrics) {
  batch.steps_planned = std::max<int64_t>(1, static_cast<int64_t>(plan.size()));
  const StepGradient gradient(pass, parameters, *correction, config);
  const size_t first_epoch = plan.size() / static_cast<size_t>(config.epochs);
  double loss = 0.0, norm = 0.0, taken = 0.0, clean = 0.0;
  for (size_t s = 0; s < plan.size(); ++s) {
    parameters.zero_grad();
    const auto part = gradient.accumulate(batch, plan[s], loss_scale(), s < first_epoch ? &scores : nullptr);
    if (!part) continue;
    loss += *part;
    taken += 1.0;
    const StepOutcome outcome = optimizer.step();
    metrics["lr"] = outcome.lr;
    if (outcome.skipped) continue;
    ++batch.steps_taken;
    norm += outcome.grad_norm;
    clean += 1.0;
  }
  if (std::isfinite(loss)) metrics["loss"] = taken > 0.0 ? loss / taken : 0.0;
  if (clean > 0.0) metrics["grad_norm"] = norm / clean;
  metrics["steps/skipped"] = static_cast<double>(optimizer.skipped());
  if (optimizer.loss_scale().enabled) metrics["loss_scale"] = optimizer.loss_scale().scale;
}

Metrics Learner::State::update(const std::vector<Trajectory>& samples, bool train) {
  TrainingBatch batch(samples, select_samples(samples, model.vocabulary, model.max_positions));
  const MinibatchRule rule{config.minibatches, config.epochs, config.seed};
  const Samples plan =
      train ? plan_minibatches(batch.selection, rule, static_cast<uint64_t>(steps)) : Samples{batch.selection.kept};
  Metrics metrics;
  BatchScores scores(samples.size());
  score_ahead(batch, plan, metrics);
  compare(batch, train, metrics);
  if (train) {
    take_steps(batch, plan, scores, metrics);
    ++steps;
  } else {
    const StepGradient gradient(pass, parameters, *correction, config);
    const double loss = gradient.accumulate(batch, plan.front(), 1.0, &scores).value_or(0.0);
    if (std::isfinite(loss)) metrics["loss"] = loss;
  }
  metrics.merge(batch_metrics(samples, batch.selection, scores,
                              {training_band(config.correction_parameters), config.sampler_formats}));
  return metrics;
}

Metrics Learner::State::supervised(const std::vector<Demonstration>& batch) {
  int64_t answer_tokens = 0;
  for (const Demonstration& pair : batch) {
    if (pair.tokens.size() != pair.loss_mask.size() || (!pair.tokens.empty() && pair.loss_mask[0])) {
      throw std::invalid_argument("a demonstration needs one mask entry per token, and a prompt before its answer");
    }
    answer_tokens += std::count_if(pair.loss_mask.begin(), pair.loss_mask.end(), [](uint8_t m) { return m != 0; });
  }
  if (answer_tokens == 0) throw std::invalid_argument("a supervised step needs at least one answer token");
  parameters.zero_grad();
  double loss = 0.0;
  const auto flush = [&](const MicroBatch& micro) {
    const Scored scored = pass.score(parameters, micro);
    for (const double log_p : scored.log_p) loss -= log_p / static_cast<double>(answer_tokens);
    propagate(scored, std::vector<double>(micro.tokens(), -1.0 / static_cast<double>(answer_tokens)), {}, loss_scale());
  };
  MicroBatch micro;
  int64_t packed = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto length = static_cast<int64_t>(batch[i].tokens.size());
    if (micro.tokens() > 0 && packed + length > config.micro_batch_tokens) {
      flush(micro);
      micro = MicroBatch();
      packed = 0;
    }
    micro.query->log_p_only = true;  // a demonstration has no use for entropies
    for (const size_t position : micro.append_sequence(i, batch[i].tokens, batch[i].loss_mask)) {
      micro.select_drawn(batch[i].tokens[position], 0.0);
    }
    packed += length;
  }
  if (micro.tokens() > 0) flush(micro);
  const StepOutcome outcome = optimizer.step();
  return {{"loss", loss}, {"grad_norm", outcome.grad_norm}, {"lr", outcome.lr}};
}

Learner::Learner(const TransformerConfig& model, Parameters& parameters, LearnerConfig config)
    : Learner(model, parameters, config, make_correction(config.correction, config.correction_parameters)) {}
Learner::Learner(const TransformerConfig& model, Parameters& parameters, LearnerConfig config,
                 std::unique_ptr<Correction> correction)
    : state_(std::make_unique<State>(model, parameters, std::move(config), std::move(correction))) {}
Learner::~Learner() = default;

Metrics Learner::step(const std::vector<Trajectory>& batch) { return state_->update(batch, true); }
Metrics Learner::gradient(const std::vector<Trajectory>& batch) { return state_->update(batch, false); }
Metrics Learner::supervised_step(const std::vector<Demonstration>& batch) { return state_->supervised(batch); }
int64_t Learner::steps() const { return state_->steps; }
void Learner::set_steps(int64_t steps) { state_->steps = steps; }
void Learner::set_reference(std::shared_ptr<const Parameters> reference) {
  const Device& device = state_->parameters.device();
  if (reference && reference->device() != device)
    reference = std::make_shared<const Parameters>(reference->clone(device));
  state_->reference = std::move(reference);
}
std::map<std::string, std::string> Learner::state() const { return {{"baseline", state_->baseline.state()}}; }
void Learner::restore(const std::map<std::string, std::string>& state) {
  if (const auto found = state.find("baseline"); found != state.end()) state_->baseline.restore(found->second);
}
AdamW& Learner::optimizer() { return state_->optimizer; }
const LearnerConfig& Learner::config() const { return state_->config; }

}  // namespace motley::algos
