// Every sequence of a problem with its probability, and any list of them laid out as the learner lays out a batch: the
// arrays of a CorrectionBatch, the trainer's side over the replayed candidate set.
#pragma once

#include <span>
#include <vector>

#include "algos/audit/problem.h"
#include "algos/correction_arrays.h"

namespace motley::algos::audit {

class Enumeration {
 public:
  /// The problem must have been checked, and must outlive this.
  explicit Enumeration(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const std::vector<double>& q() const { return q_; }                // [sequences] the sampler's probability
  const std::vector<double>& p() const { return p_; }                // the trainer's, over the replayed candidates
  const std::vector<double>& p_whole() const { return p_whole_; }    // the trainer's, over the vocabulary
  const std::vector<size_t>& possible() const { return possible_; }  // sequences that the sampler can draw
  std::vector<double> advantage() const;                             // [sequences]
  /// [entries] over the candidates; -inf elsewhere.
  const std::vector<double>& log_p() const { return log_p_; }
  const std::vector<double>& log_p_old() const { return log_p_old_; }
  /// The ids that a record lists at a row, ascending: the candidates, cut to the K most probable under q where nothing
  /// is truncated (ties to the lower id).
  std::span<const int32_t> record(size_t row) const;

  /// Gradient of the expected reward minus the baseline, as coefficients [entries] on the logits (which sum to 0 over a
  /// row, so that they are coefficients on log p as well): over the replayed candidate sets, over the whole vocabulary.
  std::vector<double> exact_gradient() const { return exact_gradient(p_, log_p_); }
  std::vector<double> exact_gradient_whole() const { return exact_gradient(p_whole_, problem_.log_p); }

 private:
  std::vector<double> exact_gradient(const std::vector<double>& weight, const std::vector<double>& log_p) const;

  const Problem& problem_;
  std::vector<double> q_, p_, p_whole_, log_p_, log_p_old_;
  std::vector<size_t> possible_;
  std::vector<std::vector<int32_t>> records_;
};

/// Arrays of a CorrectionBatch for some sequences, in their order (one may stand there twice).
class LaidOut {
 public:
  /// `advantage` has one entry per sequence of the list.
  LaidOut(const Enumeration& all, std::span<const size_t> sequences, std::span<const double> advantage,
          const Correction& correction);
  LaidOut(const LaidOut&) = delete;  // batch() points into it
  LaidOut& operator=(const LaidOut&) = delete;
  const CorrectionBatch& batch() const { return batch_; }
  size_t row(size_t token) const { return rows_[token]; }
  int32_t id(size_t entry) const { return ids_[entry]; }

 private:
  void append(const Enumeration& all, size_t row, int32_t drawn, bool with_record);
  void append_entry(const Enumeration& all, size_t at, size_t id, bool recorded);

  CorrectionArrays arrays_;
  std::vector<size_t> rows_;  // [tokens]
  std::vector<int32_t> ids_;  // [entries]
  CorrectionBatch batch_;
};

}  // namespace motley::algos::audit
