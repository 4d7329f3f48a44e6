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
  const auto entries = static_cast<int64_t>(arrays_.entries());
  arrays_.offsets.pop_back();  // the end so far is where the next token begins
  extend(arrays_.offsets, micro.offsets, entries);
  extend(arrays_.sampled, micro.sampled, entries);
  extend(arrays_.sequence, micro.sequence, sequences_);
  sequences_ += static_cast<int64_t>(micro.samples.size());
  extend(arrays_.log_p, scored.log_p);
  extend(arrays_.log_q, micro.log_q);
  extend(arrays_.in_record, micro.in_record);
  extend(arrays_.log_p_tail, tails_outside_records(micro, scored.log_p, scored.log_outside));
  extend(arrays_.log_q_tail, micro.log_q_tail);
  extend(arrays_.advantage, micro.advantage);
  extend(arrays_.staleness, micro.staleness);
  for (size_t t = 0; t < micro.tokens(); ++t) arrays_.sampler_group.push_back(batch_.sampler_group[micro.sample_of(t)]);
  if (!with_old_) return;
  for (size_t t = 0, place = 0; t < micro.tokens(); ++t) {
    place = micro.begins_sample(t) ? 0 : place + 1;
    arrays_.log_p_old.push_back(batch_.steps_taken == 0 ? scored.log_p[static_cast<size_t>(micro.sampled[t])]
                                                        : batch_.log_p_old[micro.sample_of(t)].at(place));
  }
}

CorrectionBatch CorrectionInput::view() const {
  CorrectionBatch batch = arrays_.view();
  batch.group_names = batch_.group_names;
  batch.steps_since_old = batch_.steps_taken;
  batch.steps_per_batch = batch_.steps_planned;
  return batch;
}

}  // namespace motley::algos
