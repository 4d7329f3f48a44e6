#include "algos/batch_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace motley::algos {
namespace {

std::span<const int32_t> listed_ids(const TokenRecords& records, size_t t) {
  return std::span(records.ids).subspan(records.offsets[t], records.offsets[t + 1] - records.offsets[t]);
}

/// A list without a tail and shorter than the vocabulary is the support of a truncated distribution.
bool truncated(const TokenRecords& records, size_t t, int64_t vocabulary) {
  const auto size = static_cast<int64_t>(listed_ids(records, t).size());
  return size > 0 && size < vocabulary && std::isinf(records.log_tail[t]);
}

bool any_truncated(std::span<const Trajectory> batch, std::span<const size_t> samples, int64_t vocabulary) {
  return std::any_of(samples.begin(), samples.end(), [&](size_t i) {
    const TokenRecords& records = batch[i].records;
    for (size_t t = 0; t < records.size(); ++t) {
      if (truncated(records, t, vocabulary)) return true;
    }
    return false;
  });
}

/// The drawn token and every recorded id, ascending.
void select_record(MicroBatch& micro, const TokenRecords& records, size_t t) {
  const std::span<const int32_t> ids = listed_ids(records, t);
  const int32_t drawn = records.tokens[t];
  HeadQuery& query = *micro.query;
  const auto add = [&](int32_t id, double log_q, bool recorded) {
    if (id == drawn) micro.sampled.push_back(static_cast<int64_t>(query.selected_ids.size()));
    query.selected_ids.push_back(id);
    micro.log_q.push_back(id == drawn ? records.log_q[t] : log_q);
    micro.in_record.push_back(recorded);
  };
  bool seen = false;
  for (size_t k = 0; k < ids.size(); ++k) {
    if (!seen && ids[k] > drawn) add(drawn, 0.0, false);
    seen = seen || ids[k] >= drawn;
    add(ids[k], records.id_log_q[static_cast<size_t>(records.offsets[t]) + k], true);
  }
  if (!seen) add(drawn, 0.0, false);
  micro.offsets.push_back(static_cast<int64_t>(query.selected_ids.size()));
  query.selected_offsets.push_back(micro.offsets.back());
  micro.log_q_tail.push_back(records.log_tail[t]);
}

void restrict_support(HeadQuery& query, const TokenRecords& records, size_t t, int64_t vocabulary) {
  if (truncated(records, t, vocabulary)) {
    const std::span<const int32_t> ids = listed_ids(records, t);
    query.candidate_ids.insert(query.candidate_ids.end(), ids.begin(), ids.end());
  } else {  // a row among restricted ones that is not: every id
    const size_t begin = query.candidate_ids.size();
    query.candidate_ids.resize(begin + static_cast<size_t>(vocabulary));
    std::iota(query.candidate_ids.begin() + static_cast<int64_t>(begin), query.candidate_ids.end(), 0);
  }
  query.candidate_offsets.push_back(static_cast<int64_t>(query.candidate_ids.size()));
}

double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == kNoMass ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace

std::vector<size_t> MicroBatch::append_sequence(size_t sample, std::span<const int32_t> tokens,
                                                std::span<const uint8_t> loss_mask) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (loss_mask[i]) positions.push_back(i);
  }
  if (positions.empty()) return positions;
  const int64_t start = sequences.starts.back();
  sequences.append(tokens.first(positions.back()));
  for (const size_t i : positions) {
    rows.push_back(start + static_cast<int64_t>(i) - 1);
    sequence.push_back(static_cast<int64_t>(samples.size()));
  }
  samples.push_back(sample);
  return positions;
}

void MicroBatch::select_drawn(int32_t token, double token_log_q) {
  sampled.push_back(static_cast<int64_t>(query->selected_ids.size()));
  query->selected_ids.push_back(token);
  log_q.push_back(token_log_q);
  in_record.push_back(0);
  offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
  query->selected_offsets.push_back(offsets.back());
  log_q_tail.push_back(kNoMass);
}

std::vector<std::vector<size_t>> plan_micro_batches(std::span<const Trajectory> batch, std::span<const size_t> samples,
                                                    int64_t max_tokens) {
  std::vector<std::vector<size_t>> plan;
  int64_t tokens = 0;
  for (const size_t i : samples) {
    const auto length = static_cast<int64_t>(batch[i].tokens.size());
    const bool fits = !plan.empty() && tokens + length <= max_tokens &&
                      batch[plan.back().front()].temperature == batch[i].temperature;
    if (!fits) {
      plan.emplace_back();
      tokens = 0;
    }
    plan.back().push_back(i);
    tokens += length;
  }
  return plan;
}

MicroBatch lay_out(std::span<const Trajectory> batch, std::span<const size_t> samples,
                   std::span<const std::vector<double>> advantage, bool with_records, int64_t vocabulary) {
  MicroBatch micro;
  HeadQuery& query = *micro.query;
  if (!samples.empty()) query.temperature = batch[samples.front()].temperature;
  const bool restricted = any_truncated(batch, samples, vocabulary);
  if (restricted) query.candidate_offsets = {0};
  for (const size_t i : samples) {
    const Trajectory& sample = batch[i];
    micro.append_sequence(i, sample.tokens, sample.loss_mask);
    if (advantage.empty())
      micro.advantage.resize(micro.rows.size(), 0.0);
    else
      micro.advantage.insert(micro.advantage.end(), advantage[i].begin(), advantage[i].end());
    for (const uint64_t version : sample.records.versions)
      micro.staleness.push_back(static_cast<int64_t>(sample.batch_version - std::min(sample.batch_version, version)));
    for (size_t t = 0; t < sample.records.size(); ++t) {
      if (!with_records) {
        micro.select_drawn(sample.records.tokens[t], sample.records.log_q[t]);
      } else if (listed_ids(sample.records, t).empty()) {
        throw std::runtime_error(
            "the correction needs recorded candidates or top-K probabilities, but a token of "
            "sampler group \"" +
            sample.sampler + "\" has none");
      } else {
        select_record(micro, sample.records, t);
      }
      if (restricted) restrict_support(query, sample.records, t, vocabulary);
    }
  }
  return micro;
}

std::vector<double> tails_outside_records(const MicroBatch& micro, std::span<const double> log_p,
                                          std::span<const double> log_outside) {
  std::vector<double> tails(micro.tokens(), kNoMass);
  for (size_t t = 0; t < micro.tokens(); ++t) {
    if (micro.log_q_tail[t] == kNoMass) continue;
    const auto drawn = static_cast<size_t>(micro.sampled[t]);
    tails[t] = micro.in_record[drawn] ? log_outside[t] : log_add(log_outside[t], log_p[drawn]);
  }
  return tails;
}

}  // namespace motley::algos
