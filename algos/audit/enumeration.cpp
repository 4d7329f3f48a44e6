#include "algos/audit/enumeration.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::algos::audit {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

double log_sum_exp(std::span<const double> values) {
  const double high = values.empty() ? kNone : *std::max_element(values.begin(), values.end());
  if (high == kNone) return kNone;
  double sum = 0.0;
  for (const double value : values) sum += std::exp(value - high);
  return high + std::log(sum);
}

/// Each row over its candidates: kept, the rest -inf, renormalized where something was cut off.
std::vector<double> over_candidates(const Problem& problem, const std::vector<double>& log_p) {
  std::vector<double> result = log_p;
  const auto width = static_cast<size_t>(problem.vocabulary);
  for (size_t at = 0; at < log_p.size(); at += width) {
    bool cut = false;
    for (size_t i = at; i < at + width; ++i) {
      if (problem.candidate[i]) continue;
      result[i] = kNone;
      cut = true;
    }
    if (!cut) continue;
    const double lse = log_sum_exp(std::span(result).subspan(at, width));
    for (size_t i = at; i < at + width; ++i) result[i] -= lse;
  }
  return result;
}

std::vector<int32_t> recorded_ids(const Problem& problem, size_t row) {
  const size_t at = row * static_cast<size_t>(problem.vocabulary);
  std::vector<int32_t> ids;
  for (int32_t v = 0; v < problem.vocabulary; ++v) {
    if (problem.candidate[at + static_cast<size_t>(v)]) ids.push_back(v);
  }
  const bool truncated = static_cast<int64_t>(ids.size()) < problem.vocabulary;
  if (truncated || problem.record_top_k == 0 || problem.record_top_k >= problem.vocabulary) return ids;
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return problem.log_q[at + static_cast<size_t>(a)] > problem.log_q[at + static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(problem.record_top_k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<double> sequence_probabilities(const Problem& problem, const std::vector<double>& log_values) {
  std::vector<double> result;
  for (const Tree::Sequence& sequence : problem.tree.sequences()) {
    double log_probability = 0.0;
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      log_probability += log_values[sequence.rows[t] * static_cast<size_t>(problem.vocabulary) +
                                    static_cast<size_t>(sequence.tokens[t])];
    }
    result.push_back(std::exp(log_probability));
  }
  return result;
}

}  // namespace

Enumeration::Enumeration(const Problem& problem)
    : problem_(problem),
      q_(sequence_probabilities(problem, problem.log_q)),
      p_whole_(sequence_probabilities(problem, problem.log_p)),
      log_p_(over_candidates(problem, problem.log_p)),
      log_p_old_(over_candidates(problem, problem.log_p_old)) {
  p_ = sequence_probabilities(problem, log_p_);
  for (size_t s = 0; s < q_.size(); ++s) {
    if (q_[s] > 0.0) possible_.push_back(s);
  }
  for (size_t row = 0; row < problem.rows(); ++row) records_.push_back(recorded_ids(problem, row));
}

std::vector<double> Enumeration::advantage() const {
  std::vector<double> result = problem_.reward;
  for (double& value : result) value -= problem_.baseline;
  return result;
}

std::span<const int32_t> Enumeration::record(size_t row) const { return records_[row]; }

std::vector<double> Enumeration::exact_gradient(const std::vector<double>& weight,
                                                const std::vector<double>& log_p) const {
  std::vector<double> c(problem_.entries(), 0.0);
  const auto width = static_cast<size_t>(problem_.vocabulary);
  const std::vector<double> a = advantage();
  for (size_t s = 0; s < weight.size(); ++s) {
    if (weight[s] == 0.0) continue;
    const Tree::Sequence& sequence = problem_.tree.sequences()[s];
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      const size_t at = sequence.rows[t] * width;
      const double part = weight[s] * a[s];
      c[at + static_cast<size_t>(sequence.tokens[t])] += part;
      for (size_t v = 0; v < width; ++v) c[at + v] -= part * std::exp(log_p[at + v]);
    }
  }
  return c;
}

LaidOut::LaidOut(const Enumeration& all, std::span<const size_t> sequences, std::span<const double> advantage,
                 const Correction& correction) {
  const bool with_record = correction.needs() != RecordKind::sampled;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Tree::Sequence& sequence = all.problem().tree.sequences()[sequences[i]];
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      append(all, sequence.rows[t], sequence.tokens[t], with_record);
      arrays_.sequence.push_back(static_cast<int64_t>(i));
      arrays_.advantage.push_back(advantage[i]);
    }
  }
  if (!correction.needs_old_log_probs()) arrays_.log_p_old.clear();
  arrays_.staleness.assign(rows_.size(), all.problem().staleness);
  batch_ = arrays_.view();
  batch_.steps_since_old = all.problem().steps_since_old;
}

void LaidOut::append(const Enumeration& all, size_t row, int32_t drawn, bool with_record) {
  const auto width = static_cast<size_t>(all.problem().vocabulary);
  const size_t at = row * width;
  rows_.push_back(row);
  arrays_.log_p_old.push_back(all.log_p_old()[at + static_cast<size_t>(drawn)]);
  if (!with_record) {
    arrays_.sampled.push_back(static_cast<int64_t>(ids_.size()));
    append_entry(all, at, static_cast<size_t>(drawn), false);
    arrays_.offsets.push_back(static_cast<int64_t>(ids_.size()));
    arrays_.log_p_tail.push_back(kNone);
    arrays_.log_q_tail.push_back(kNone);
    return;
  }
  std::vector<uint8_t> listed(width, 0);
  for (const int32_t id : all.record(row)) listed[static_cast<size_t>(id)] = 1;
  std::vector<double> p_outside, q_outside;
  for (size_t v = 0; v < width; ++v) {
    if (!listed[v]) {
      p_outside.push_back(all.log_p()[at + v]);
      q_outside.push_back(all.problem().log_q[at + v]);
    }
    const bool is_drawn = v == static_cast<size_t>(drawn);
    if (!listed[v] && !is_drawn) continue;
    if (is_drawn) arrays_.sampled.push_back(static_cast<int64_t>(ids_.size()));
    append_entry(all, at, v, listed[v]);
  }
  arrays_.offsets.push_back(static_cast<int64_t>(ids_.size()));
  // As the learner lays it out: where nothing is outside the record, there is no tail on either side.
  const double q_tail = log_sum_exp(q_outside);
  arrays_.log_q_tail.push_back(q_tail);
  arrays_.log_p_tail.push_back(q_tail > kNone ? log_sum_exp(p_outside) : kNone);
}

void LaidOut::append_entry(const Enumeration& all, size_t at, size_t id, bool recorded) {
  ids_.push_back(static_cast<int32_t>(id));
  arrays_.log_p.push_back(all.log_p()[at + id]);
  arrays_.log_q.push_back(all.problem().log_q[at + id]);
  arrays_.in_record.push_back(recorded);
}

}  // namespace motley::algos::audit
