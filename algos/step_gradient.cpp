#include "algos/step_gradient.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "algos/advantage.h"
#include "algos/reference_kl.h"

namespace motley::algos {

struct StepGradient::Step {
  TrainingBatch& batch;
  double scale;
  BatchScores* scores;  // where they are wanted
  // [batch] the reduction's for the correction and for the terms beside it, and the result by sample.
  std::vector<double> factor, term_factor, loss;
};

struct StepGradient::Whole {
  std::vector<int64_t> offsets;  // [tokens + 1] into coefficients.b
  Coefficients coefficients;
  std::vector<size_t> first_token;  // [batch] of a sample
  std::vector<int64_t> masked;      // [batch] tokens

  /// The b of a micro-batch's samples, which are laid out in it as they were in the whole.
  std::vector<double> slice(const MicroBatch& micro) const {
    std::vector<double> b;
    b.reserve(micro.log_q.size());
    for (size_t t = 0, token = 0; t < micro.tokens(); ++t) {
      token = micro.begins_sample(t) ? first_token[micro.sample_of(t)] : token + 1;
      b.insert(b.end(), coefficients.b.begin() + offsets[token], coefficients.b.begin() + offsets[token + 1]);
    }
    return b;
  }
};

namespace {

/// What is known of a sample once it is scored under the weights of this step.
void note_scored(TrainingBatch& batch, BatchScores* scores, const MicroBatch& micro, const Scored& scored) {
  const std::vector<double> tails = tails_outside_records(micro, scored.log_p, scored.log_outside);
  for (size_t t = 0; t < micro.tokens(); ++t) {
    const size_t sample = micro.sample_of(t);
    const auto drawn = static_cast<size_t>(micro.sampled[t]);
    if (batch.steps_taken == 0) {
      if (micro.begins_sample(t)) batch.log_p_old[sample].clear();
      batch.log_p_old[sample].push_back(scored.log_p[drawn]);
    }
    if (!scores) continue;
    SampleScores& found = scores->samples[sample];
    const std::vector<double>& reference = batch.log_p_reference[sample];
    const size_t place = found.log_p.size();
    if (!reference.empty()) found.log_reference_ratio.push_back(scored.log_p[drawn] - reference[place]);
    found.log_p.push_back(scored.log_p[drawn]);
    found.entropy.push_back(scored.entropy[t]);
    found.log_p_tail.push_back(tails[t]);
    found.log_q_tail.push_back(micro.log_q_tail[t]);
  }
}

bool has_advantage(const TrainingBatch& batch, size_t sample) {
  const std::vector<double>& advantage = batch.selection.advantage[sample];
  return std::any_of(advantage.begin(), advantage.end(), [](double a) { return a != 0.0; });
}

void note_samples(BatchScores& scores, const Coefficients& coefficients) {
  for (const auto& [name, values] : coefficients.samples) {
    std::vector<double>& all = scores.further[name];
    all.insert(all.end(), values.begin(), values.end());
  }
}

}  // namespace

template <class Visit>
void StepGradient::each_scored(Step& step, std::span<const size_t> samples, const Visit& visit) const {
  const bool with_records = correction_.needs() != RecordKind::sampled;
  const TrainingBatch& batch = step.batch;
  for (const std::vector<size_t>& indices : plan_micro_batches(batch.samples, samples, config_.micro_batch_tokens)) {
    const MicroBatch micro =
        lay_out(batch.samples, indices, batch.selection.advantage, with_records, pass_.model().vocabulary);
    visit(micro, pass_.score(parameters_, micro));
  }
}

Coefficients StepGradient::coefficients(Step& step, const MicroBatch& micro, const Scored& scored) const {
  note_scored(step.batch, step.scores, micro, scored);
  CorrectionInput input(step.batch, correction_.needs_old_log_probs());
  input.append(micro, scored);
  Coefficients result(input.view());
  correction_.coefficients(input.view(), result);
  if (step.scores) {
    for (size_t t = 0; t < micro.tokens(); ++t)
      step.scores->samples[micro.sample_of(t)].masked.push_back(result.masked[t]);
    note_samples(*step.scores, result);
  }
  return result;
}

void StepGradient::note_filtered(Step& step, std::span<const size_t> samples) const {
  const NoGrad no_grad;
  each_scored(step, samples, [&](const MicroBatch& micro, const Scored& scored) {
    note_scored(step.batch, step.scores, micro, scored);
    for (size_t t = 0; t < micro.tokens(); ++t) step.scores->samples[micro.sample_of(t)].masked.push_back(0);
  });
}

StepGradient::Whole StepGradient::score_whole(Step& step, std::span<const size_t> samples) const {
  const NoGrad no_grad;
  CorrectionInput input(step.batch, correction_.needs_old_log_probs());
  std::vector<size_t> sample_of, first_token(step.batch.samples.size());
  each_scored(step, samples, [&](const MicroBatch& micro, const Scored& scored) {
    note_scored(step.batch, step.scores, micro, scored);
    input.append(micro, scored);
    for (size_t t = 0; t < micro.tokens(); ++t) {
      if (micro.begins_sample(t)) first_token[micro.sample_of(t)] = sample_of.size();
      sample_of.push_back(micro.sample_of(t));
    }
  });
  const CorrectionBatch view = input.view();
  Whole whole{.offsets = {view.offsets.begin(), view.offsets.end()},
              .coefficients = Coefficients(view),
              .first_token = std::move(first_token),
              .masked = std::vector<int64_t>(step.batch.samples.size(), 0)};
  correction_.coefficients(view, whole.coefficients);
  for (size_t t = 0; t < sample_of.size(); ++t) {
    const uint8_t masked = whole.coefficients.masked[t];
    whole.masked[sample_of[t]] += masked;
    if (step.scores) step.scores->samples[sample_of[t]].masked.push_back(masked);
  }
  if (step.scores) note_samples(*step.scores, whole.coefficients);
  return whole;
}

double StepGradient::add_terms(const Step& step, const MicroBatch& micro, const Scored& scored, size_t t, size_t place,
                               std::vector<double>& b) const {
  const size_t sample = micro.sample_of(t);
  const double factor = step.term_factor[sample];
  double loss = -factor * config_.entropy_coefficient * scored.entropy[t];
  if (!kl_in_loss()) return loss;
  const auto drawn = static_cast<size_t>(micro.sampled[t]);
  const double log_p = scored.log_p[drawn];
  const KlTerm term = kl_term(config_.kl, log_p - step.batch.log_p_reference[sample].at(place));
  double weight = factor * config_.kl_coefficient;
  if (config_.kl_ratio_cap > 0.0)
    weight *= std::exp(std::min(log_p - micro.log_q[drawn], std::log(config_.kl_ratio_cap)));
  b[drawn] += weight * term.cotangent;
  return loss + weight * term.value;
}

void StepGradient::add_gradient(Step& step, const MicroBatch& micro, const Scored& scored,
                                std::vector<double> b) const {
  std::vector<double> d_entropy;
  for (size_t t = 0, place = 0; t < micro.tokens(); ++t) {
    place = micro.begins_sample(t) ? 0 : place + 1;
    const size_t sample = micro.sample_of(t);
    for (auto k = static_cast<size_t>(micro.offsets[t]); k < static_cast<size_t>(micro.offsets[t + 1]); ++k) {
      b[k] *= step.factor[sample];
      if (b[k] != 0.0) step.loss[sample] += b[k] * scored.log_p[k];  // never 0 * -inf
    }
    if (has_terms()) step.loss[sample] += add_terms(step, micro, scored, t, place, b);
    if (config_.entropy_coefficient != 0.0)
      d_entropy.push_back(-config_.entropy_coefficient * step.term_factor[sample]);
  }
  propagate(scored, std::move(b), std::move(d_entropy), step.scale);
}

std::vector<double> StepGradient::factors(const TrainingBatch& batch, std::span<const size_t> samples,
                                          std::span<const int64_t> masked) const {
  std::vector<int64_t> tokens, counted;
  std::vector<uint64_t> groups;
  for (const size_t i : samples) {
    tokens.push_back(batch.selection.filtered[i] ? 0 : static_cast<int64_t>(batch.samples[i].records.size()));
    counted.push_back(tokens.back() == 0 || masked.empty() ? tokens.back() : tokens.back() - masked[i]);
    groups.push_back(batch.samples[i].group);
  }
  const std::vector<double> factors = reduction_factors(config_.reduction, tokens, counted, groups, config_.max_tokens);
  std::vector<double> by_sample(batch.samples.size(), 0.0);
  for (size_t j = 0; j < samples.size(); ++j) by_sample[samples[j]] = factors[j];
  return by_sample;
}

std::optional<double> StepGradient::accumulate(TrainingBatch& batch, std::span<const size_t> samples, double scale,
                                               BatchScores* scores) const {
  Step step{.batch = batch,
            .scale = scale,
            .scores = scores,
            .factor = factors(batch, samples, {}),
            .term_factor = {},
            .loss = std::vector<double>(batch.samples.size(), 0.0)};
  step.term_factor = step.factor;
  std::vector<size_t> judged, active, inactive, filtered;
  for (const size_t i : samples) {
    if (batch.samples[i].records.size() == 0) continue;
    if (batch.selection.filtered[i]) {
      filtered.push_back(i);
      continue;
    }
    judged.push_back(i);
    (has_terms() || has_advantage(batch, i) ? active : inactive).push_back(i);
  }
  if (scores) note_filtered(step, filtered);
  const bool renormalized = config_.denominator == "renormalized";
  if (correction_.scope() == Scope::batch || renormalized) {
    const Whole whole = score_whole(step, judged);
    if (renormalized) step.factor = factors(batch, samples, whole.masked);
    each_scored(step, active, [&](const MicroBatch& micro, const Scored& scored) {
      add_gradient(step, micro, scored, whole.slice(micro));
    });
  } else {
    // Samples without an advantage give a gradient of exactly 0: scored for the metrics, not differentiated.
    if (scores) {
      const NoGrad no_grad;
      each_scored(step, inactive,
                  [&](const MicroBatch& micro, const Scored& scored) { coefficients(step, micro, scored); });
    }
    each_scored(step, active, [&](const MicroBatch& micro, const Scored& scored) {
      add_gradient(step, micro, scored, coefficients(step, micro, scored).b);
    });
  }
  if (active.empty()) return std::nullopt;
  return std::accumulate(step.loss.begin(), step.loss.end(), 0.0);  // by sample, so that no split changes its bits
}

}  // namespace motley::algos
