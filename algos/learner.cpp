#include "algos/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "algos/advantage.h"
#include "algos/step_gradient.h"
#include "kernels/philox.h"

namespace motley::algos {
namespace {

void check_supported(const LearnerConfig& config) {
  if (config.minibatches < 1 || config.epochs < 1 || config.micro_batch_tokens < 1) {
    throw std::invalid_argument("minibatches, epochs and micro_batch_tokens must be at least 1");
  }
  const auto known = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!known(advantage_names(), config.advantage)) advantages(config.advantage, {});  // throws with the names
  if (!known(reduction_names(), config.reduction)) reduction_factors(config.reduction, {}, {}, 1);
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
  int64_t steps = 0;

  State(const TransformerConfig& model_config, Parameters& masters, LearnerConfig learner_config,
        std::unique_ptr<Correction> rule)
      : model(model_config.resolved()),
        parameters(masters),
        config(with_kv_format(std::move(learner_config))),
        correction(std::move(rule)),
        pass(model, config.profile, config.checkpoint_activations),
        optimizer(masters, config.optimizer, config.loss_scale) {
    check_supported(config);
    parameters.set_requires_grad(true);
  }

  Metrics update(const std::vector<Trajectory>& batch, bool take_steps);
  Metrics supervised(const std::vector<Demonstration>& batch);

 private:
  using Samples = std::vector<size_t>;
  /// The samples of every optimizer step on a batch, all epochs.
  std::vector<Samples> plan(const SampleSelection& selection, bool take_steps) const;
  /// Fills in log_p_old of the samples that the first step does not score itself; gives the seconds that it took.
  std::optional<double> score_old(TrainingBatch& batch, std::span<const size_t> first_step) const;
  std::vector<std::vector<size_t>> minibatches(const SampleSelection& selection, int64_t count, int64_t epoch) const;
  double loss_scale() const { return optimizer.loss_scale().enabled ? optimizer.loss_scale().scale : 1.0; }
};

std::vector<std::vector<size_t>> Learner::State::minibatches(const SampleSelection& selection, int64_t wanted,
                                                             int64_t epoch) const {
  if (wanted == 1) return {selection.kept};
  std::vector<size_t> order(selection.groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const uint64_t session = kernels::mix(static_cast<uint64_t>(steps), static_cast<uint64_t>(epoch));
  kernels::RandomStream random({config.seed, kernels::Purpose::data, session, 0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  const size_t count = std::min(static_cast<size_t>(wanted), order.size());
  std::vector<std::vector<size_t>> result(count);
  for (size_t m = 0; m < count; ++m) {
    for (size_t i = order.size() * m / count; i < order.size() * (m + 1) / count; ++i) {
      const std::vector<size_t>& group = selection.groups[order[i]];
      result[m].insert(result[m].end(), group.begin(), group.end());
    }
  }
  return result;
}

std::vector<std::vector<size_t>> Learner::State::plan(const SampleSelection& selection, bool take_steps) const {
  if (!take_steps) return {selection.kept};
  std::vector<Samples> steps_of_batch;
  for (int64_t epoch = 0; epoch < config.epochs; ++epoch)
    for (Samples& samples : minibatches(selection, config.minibatches, epoch))
      steps_of_batch.push_back(std::move(samples));
  return steps_of_batch;
}

std::optional<double> Learner::State::score_old(TrainingBatch& batch, std::span<const size_t> first_step) const {
  std::vector<bool> scored(batch.samples.size(), false);
  for (const size_t i : first_step) scored[i] = true;
  Samples rest;
  for (const size_t i : batch.selection.kept)
    if (!scored[i]) rest.push_back(i);
  if (rest.empty()) return std::nullopt;
  const auto start = std::chrono::steady_clock::now();
  batch.log_p_old = pass.drawn_log_probs(parameters, batch.samples, rest, config.micro_batch_tokens);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Metrics Learner::State::update(const std::vector<Trajectory>& samples, bool take_steps) {
  TrainingBatch batch(samples, select_samples(samples, model.vocabulary, model.max_positions, config.advantage));
  const std::vector<Samples> steps_of_batch = plan(batch.selection, take_steps);
  const auto minibatches_per_epoch = steps_of_batch.size() / static_cast<size_t>(take_steps ? config.epochs : 1);
  std::optional<double> old_seconds;
  if (correction->needs_old_log_probs() && !steps_of_batch.empty())
    old_seconds = score_old(batch, steps_of_batch.front());

  const StepGradient gradient(pass, parameters, *correction, config);
  BatchScores scores(samples.size());
  double loss = 0.0, norm = 0.0;
  int64_t taken = 0, clean = 0;
  std::optional<double> lr;
  for (size_t s = 0; s < steps_of_batch.size(); ++s) {
    if (take_steps) parameters.zero_grad();
    const double scale = take_steps ? loss_scale() : 1.0;
    const bool first_epoch = s < minibatches_per_epoch;
    const auto part = gradient.accumulate(batch, steps_of_batch[s], scale, first_epoch ? &scores : nullptr);
    if (!part) continue;
    loss += *part;
    ++taken;
    if (!take_steps) continue;
    const StepOutcome outcome = optimizer.step();
    lr = outcome.lr;
    if (outcome.skipped) continue;
    ++batch.steps_taken;
    norm += outcome.grad_norm;
    ++clean;
  }
  Metrics metrics = batch_metrics(samples, batch.selection, scores,
                                  {training_band(config.correction_parameters), config.sampler_formats});
  if (std::isfinite(loss)) metrics["loss"] = taken ? loss / static_cast<double>(taken) : 0.0;
  if (old_seconds) metrics["time/pi_old"] = *old_seconds;
  if (!take_steps) return metrics;
  ++steps;
  if (clean) metrics["grad_norm"] = norm / static_cast<double>(clean);
  if (lr) metrics["lr"] = *lr;
  metrics["steps/skipped"] = static_cast<double>(optimizer.skipped());
  if (optimizer.loss_scale().enabled) metrics["loss_scale"] = optimizer.loss_scale().scale;
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
    propagate(scored, std::vector<double>(micro.tokens(), -1.0 / static_cast<double>(answer_tokens)), loss_scale());
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
AdamW& Learner::optimizer() { return state_->optimizer; }
const LearnerConfig& Learner::config() const { return state_->config; }

}  // namespace motley::algos
