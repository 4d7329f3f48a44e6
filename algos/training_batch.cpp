#include "algos/training_batch.h"

#include <algorithm>

namespace motley::algos {
namespace {

template <class T>
void extend(std::vector<T>& to, const std::vector<T>& from, T shift = T{}) {
  to.reserve(to.size() + from.size());
  for (const T value : from) to.push_back(static_cast<T>(value + shift));
}

}  // namespace

TrainingBatch::TrainingBatch(std::span<const Trajectory> all, SampleSelection chosen)
    : samples(all), selection(std::move(chosen)), log_p_old(all.size()), log_p_reference(all.size()) {
  for (const Trajectory& sample : samples) group_names.push_back(sample.sampler);
  std::sort(group_names.begin(), group_names.end());
  group_names.erase(std::unique(group_names.begin(), group_names.end()), group_names.end());
  for (const Trajectory& sample : samples) {
    const auto place = std::lower_bound(group_names.begin(), group_names.end(), sample.sampler);
    sampler_group.push_back(place - group_names.begin());
  }
}

void CorrectionInput::append(const MicroBatch& micro, const Scored& scored) {
  const auto entries = static_cast<int64_t>(log_p_.size());
  offsets_.pop_back();  // the end so far is where the next token begins
  extend(offsets_, micro.offsets, entries);
  extend(sampled_, micro.sampled, entries);
  extend(sequence_, micro.sequence, sequences_);
  sequences_ += static_cast<int64_t>(micro.samples.size());
  extend(log_p_, scored.log_p);
  extend(log_q_, micro.log_q);
  extend(in_record_, micro.in_record);
  extend(log_p_tail_, tails_outside_records(micro, scored.log_p, scored.log_outside));
  extend(log_q_tail_, micro.log_q_tail);
  extend(advantage_, micro.advantage);
  extend(staleness_, micro.staleness);
  for (size_t t = 0; t < micro.tokens(); ++t) sampler_group_.push_back(batch_.sampler_group[micro.sample_of(t)]);
  if (!with_old_) return;
  for (size_t t = 0, place = 0; t < micro.tokens(); ++t) {
    place = micro.begins_sample(t) ? 0 : place + 1;
    log_p_old_.push_back(batch_.steps_taken == 0 ? scored.log_p[static_cast<size_t>(micro.sampled[t])]
                                                 : batch_.log_p_old[micro.sample_of(t)].at(place));
  }
}

CorrectionBatch CorrectionInput::view() const {
  return {.offsets = offsets_,
          .sampled = sampled_,
          .log_p = log_p_,
          .log_q = log_q_,
          .in_record = in_record_,
          .log_p_tail = log_p_tail_,
          .log_q_tail = log_q_tail_,
          .log_p_old = log_p_old_,
          .advantage = advantage_,
          .sequence = sequence_,
          .sampler_group = sampler_group_,
          .group_names = batch_.group_names,
          .staleness = staleness_,
          .steps_since_old = batch_.steps_taken,
          .steps_per_batch = batch_.steps_planned};
}

}  // namespace motley::algos
