#include "algos/learner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "algos/advantage.h"
#include "algos/batch_layout.h"
#include "algos/learner_metrics.h"
#include "algos/sample_selection.h"
#include "kernels/philox.h"

namespace motley::algos {
namespace {

/// One forward pass: what the head says, and the head itself for the way back.
struct Scored {
  std::shared_ptr<TrainerContext> context;  // which checkpointed layers ask again on the way back
  HeadResult head;
  std::vector<double> log_p, entropy;
};

void check_supported(const Correction& correction, const LearnerConfig& config) {
  if (correction.scope() == Scope::batch || correction.needs_old_log_probs()) {
    throw std::invalid_argument("correction \"" + config.correction +
                                "\" needs a scoring pass over the whole batch, which the learner does not make");
  }
  if (config.minibatches < 1 || config.epochs < 1 || config.micro_batch_tokens < 1) {
    throw std::invalid_argument("minibatches, epochs and micro_batch_tokens must be at least 1");
  }
  const auto known = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!known(advantage_names(), config.advantage)) advantages(config.advantage, {});  // throws with the names
  if (!known(reduction_names(), config.reduction)) reduction_factors(config.reduction, {}, {}, 1);
}

}  // namespace

struct Learner::State {
  TransformerConfig model;
  Parameters& parameters;
  LearnerConfig config;
  std::unique_ptr<Correction> correction;
  RopeTable rope;
  AdamW optimizer;
  int64_t steps = 0;

  State(const TransformerConfig& model_config, Parameters& masters, LearnerConfig learner_config)
      : model(model_config.resolved()),
        parameters(masters),
        config(std::move(learner_config)),
        correction(make_correction(config.correction, config.correction_parameters)),
        rope(model.max_positions, model.head_dim, model.rope_theta, kernels::compute_dtype(config.profile.output)),
        optimizer(masters, config.optimizer, config.loss_scale) {
    check_supported(*correction, config);
    config.profile.kv_cache = config.kv_format;
    parameters.set_requires_grad(true);
  }

  Metrics update(const std::vector<Trajectory>& batch, bool take_steps);
  Metrics supervised(const std::vector<Demonstration>& batch);

 private:
  /// Adds up the gradient of one optimizer step's samples; gives the surrogate loss, or nothing if no sample has an
  /// advantage.
  std::optional<double> accumulate(const std::vector<Trajectory>& batch, const SampleSelection& selection,
                                   std::span<const size_t> samples, double scale, BatchScores* scores);
  /// `factor` is the reduction's and `loss` the result, both by index into the batch.
  void pass(const MicroBatch& micro, std::span<const double> factor, double scale, bool with_gradient,
            std::span<double> loss, BatchScores* scores);
  Scored score(const MicroBatch& micro);
  void propagate(const Scored& scored, std::vector<double> cotangents, double scale);
  std::vector<std::vector<size_t>> minibatches(const SampleSelection& selection, int64_t count, int64_t epoch) const;
  double loss_scale() const { return optimizer.loss_scale().enabled ? optimizer.loss_scale().scale : 1.0; }
};

Scored Learner::State::score(const MicroBatch& micro) {
  auto context = std::make_shared<TrainerContext>(model, parameters, config.profile, rope);
  context->set_checkpointing(config.checkpoint_activations);
  const Tensor hidden = trainer_hidden(model, *context, micro.sequences);
  const Tensor weight = context->parameter(head_weight_name(model));
  Scored scored;
  if (config.checkpoint_activations) scored.context = std::move(context);
  scored.head = selected_log_probs(gather_rows(hidden, micro.rows), weight, micro.query);
  scored.log_p = scored.head.log_p.to_doubles();
  scored.entropy = scored.head.entropy.to_doubles();
  return scored;
}

void Learner::State::propagate(const Scored& scored, std::vector<double> cotangents, double scale) {
  for (double& value : cotangents) value *= scale;
  const Tensor& log_p = scored.head.log_p;
  head_backward(scored.head, Tensor::from(std::span<const double>(cotangents), log_p.shape(), log_p.dtype()), Tensor());
}

void Learner::State::pass(const MicroBatch& micro, std::span<const double> factor, double scale, bool with_gradient,
                          std::span<double> loss, BatchScores* scores) {
  std::optional<NoGrad> no_grad;
  if (!with_gradient) no_grad.emplace();
  const Scored scored = score(micro);
  const std::vector<double> log_p_tail =
      tails_outside_records(micro, scored.log_p, scored.head.log_outside.to_doubles());
  CorrectionBatch terms{.offsets = micro.offsets,
                        .sampled = micro.sampled,
                        .log_p = scored.log_p,
                        .log_q = micro.log_q,
                        .in_record = micro.in_record,
                        .log_p_tail = log_p_tail,
                        .log_q_tail = micro.log_q_tail,
                        .log_p_old = {},
                        .advantage = micro.advantage,
                        .sequence = micro.sequence};
  Coefficients coefficients(terms);
  correction->coefficients(terms, coefficients);

  for (size_t t = 0; t < micro.tokens(); ++t) {
    const size_t sample = micro.samples[static_cast<size_t>(micro.sequence[t])];
    for (auto k = static_cast<size_t>(micro.offsets[t]); k < static_cast<size_t>(micro.offsets[t + 1]); ++k) {
      coefficients.b[k] *= factor[sample];
      if (coefficients.b[k] != 0.0) loss[sample] += coefficients.b[k] * scored.log_p[k];  // never 0 * -inf
    }
    if (!scores) continue;
    const auto drawn = static_cast<size_t>(micro.sampled[t]);
    SampleScores& found = scores->samples[sample];
    found.log_ratio.push_back(scored.log_p[drawn] - micro.log_q[drawn]);
    found.entropy.push_back(scored.entropy[t]);
    found.masked.push_back(coefficients.masked[t]);
  }
  if (scores) {
    for (const auto& [name, values] : coefficients.samples) {
      std::vector<double>& all = scores->further[name];
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  if (with_gradient) propagate(scored, std::move(coefficients.b), scale);
}

std::optional<double> Learner::State::accumulate(const std::vector<Trajectory>& batch, const SampleSelection& selection,
                                                 std::span<const size_t> samples, double scale, BatchScores* scores) {
  std::vector<int64_t> tokens;
  std::vector<uint64_t> groups;
  for (const size_t i : samples) {
    tokens.push_back(static_cast<int64_t>(batch[i].records.size()));
    groups.push_back(batch[i].group);
  }
  // Over all samples of the step, before any split: how the step is cut into micro-batches does not matter.
  const std::vector<double> factors = reduction_factors(config.reduction, tokens, groups, config.max_tokens);
  std::vector<double> factor(batch.size(), 0.0), loss(batch.size(), 0.0);
  std::vector<size_t> active, inactive;
  for (size_t j = 0; j < samples.size(); ++j) {
    factor[samples[j]] = factors[j];
    if (tokens[j] > 0) (selection.advantage[samples[j]] != 0.0 ? active : inactive).push_back(samples[j]);
  }
  const bool with_records = correction->needs() != RecordKind::sampled;
  const auto run = [&](std::span<const size_t> part, bool with_gradient) {
    for (const std::vector<size_t>& indices : plan_micro_batches(batch, part, config.micro_batch_tokens)) {
      const MicroBatch micro = lay_out(batch, indices, selection.advantage, with_records, model.vocabulary);
      pass(micro, factor, scale, with_gradient, loss, scores);
    }
  };
  // Samples without an advantage give a gradient of exactly 0: scored for the metrics, not differentiated.
  if (scores) run(inactive, false);
  if (active.empty()) return std::nullopt;
  run(active, true);
  return std::accumulate(loss.begin(), loss.end(), 0.0);  // by sample, so that no split changes its bits
}

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

Metrics Learner::State::update(const std::vector<Trajectory>& batch, bool take_steps) {
  const SampleSelection selection = select_samples(batch, model.vocabulary, model.max_positions, config.advantage);
  BatchScores scores(batch.size());
  double loss = 0.0, norm = 0.0;
  int64_t taken = 0, clean = 0;
  std::optional<double> lr;
  for (int64_t epoch = 0; epoch < (take_steps ? config.epochs : 1); ++epoch) {
    for (const std::vector<size_t>& samples : minibatches(selection, take_steps ? config.minibatches : 1, epoch)) {
      if (take_steps) parameters.zero_grad();
      const double scale = take_steps ? loss_scale() : 1.0;
      const auto part = accumulate(batch, selection, samples, scale, epoch == 0 ? &scores : nullptr);
      if (!part) continue;
      loss += *part;
      ++taken;
      if (!take_steps) continue;
      const StepOutcome outcome = optimizer.step();
      lr = outcome.lr;
      if (outcome.skipped) continue;
      norm += outcome.grad_norm;
      ++clean;
    }
  }
  Metrics metrics = batch_metrics(batch, selection, scores);
  if (std::isfinite(loss)) metrics["loss"] = taken ? loss / static_cast<double>(taken) : 0.0;
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
    const Scored scored = score(micro);
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
    : state_(std::make_unique<State>(model, parameters, std::move(config))) {}
Learner::~Learner() = default;

Metrics Learner::step(const std::vector<Trajectory>& batch) { return state_->update(batch, true); }
Metrics Learner::gradient(const std::vector<Trajectory>& batch) { return state_->update(batch, false); }
Metrics Learner::supervised_step(const std::vector<Demonstration>& batch) { return state_->supervised(batch); }
int64_t Learner::steps() const { return state_->steps; }
void Learner::set_steps(int64_t steps) { state_->steps = steps; }
AdamW& Learner::optimizer() { return state_->optimizer; }
const LearnerConfig& Learner::config() const { return state_->config; }

}  // namespace motley::algos
