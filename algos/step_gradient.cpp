#include "algos/step_gradient.h"

#include <numeric>

#include "algos/advantage.h"

namespace motley::algos {

struct StepGradient::Step {
  TrainingBatch& batch;
  double scale;
  BatchScores* scores;               // where they are wanted
  std::vector<double> factor, loss;  // [batch] the reduction's, and the result by sample
};

struct StepGradient::Whole {
  std::vector<int64_t> offsets;  // [tokens + 1] into coefficients.b
  Coefficients coefficients;
  std::vector<size_t> first_token;  // [batch] of a sample

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
    found.log_p.push_back(scored.log_p[drawn]);
    found.entropy.push_back(scored.entropy[t]);
    found.log_p_tail.push_back(tails[t]);
    found.log_q_tail.push_back(micro.log_q_tail[t]);
  }
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
  Whole whole{{view.offsets.begin(), view.offsets.end()}, Coefficients(view), std::move(first_token)};
  correction_.coefficients(view, whole.coefficients);
  if (step.scores) {
    for (size_t t = 0; t < sample_of.size(); ++t)
      step.scores->samples[sample_of[t]].masked.push_back(whole.coefficients.masked[t]);
    note_samples(*step.scores, whole.coefficients);
  }
  return whole;
}

void StepGradient::add_gradient(Step& step, const MicroBatch& micro, const Scored& scored,
                                std::vector<double> b) const {
  for (size_t t = 0; t < micro.tokens(); ++t) {
    const size_t sample = micro.sample_of(t);
    for (auto k = static_cast<size_t>(micro.offsets[t]); k < static_cast<size_t>(micro.offsets[t + 1]); ++k) {
      b[k] *= step.factor[sample];
      if (b[k] != 0.0) step.loss[sample] += b[k] * scored.log_p[k];  // never 0 * -inf
    }
  }
  propagate(scored, std::move(b), step.scale);
}

std::optional<double> StepGradient::accumulate(TrainingBatch& batch, std::span<const size_t> samples, double scale,
                                               BatchScores* scores) const {
  const std::span<const Trajectory> all = batch.samples;
  std::vector<int64_t> tokens;
  std::vector<uint64_t> groups;
  for (const size_t i : samples) {
    tokens.push_back(static_cast<int64_t>(all[i].records.size()));
    groups.push_back(all[i].group);
  }
  // Over all samples of the step, before any split: how the step is cut into micro-batches does not matter.
  const std::vector<double> factors = reduction_factors(config_.reduction, tokens, groups, config_.max_tokens);
  Step step{batch, scale, scores, std::vector<double>(all.size(), 0.0), std::vector<double>(all.size(), 0.0)};
  std::vector<size_t> trainable, active, inactive;
  for (size_t j = 0; j < samples.size(); ++j) {
    const size_t i = samples[j];
    step.factor[i] = factors[j];
    if (tokens[j] == 0) continue;
    trainable.push_back(i);
    (batch.selection.advantage[i] != 0.0 ? active : inactive).push_back(i);
  }
  if (correction_.scope() == Scope::batch) {
    const Whole whole = score_whole(step, trainable);
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
