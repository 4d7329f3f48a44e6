// Micro-batches: whole sequences packed for one forward pass, what is asked of the head at each loss token, and the
// sampler's side of a CorrectionBatch. Loss token i is predicted by row i - 1 of its sequence.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "algos/correction.h"
#include "algos/trajectory.h"
#include "tensor/ops.h"
#include "tensor/transformer.h"

namespace motley::algos {

inline constexpr double kNoMass = -std::numeric_limits<double>::infinity();

struct MicroBatch {
  MicroBatch() { query->selected_offsets = {0}; }
  std::vector<size_t> samples;      // indices into the batch, one per sequence
  PackedSequences sequences;        // without the tokens from the last loss token on: they predict nothing
  std::vector<int64_t> rows;        // [tokens] of the packed hidden states, one per loss token
  std::vector<int64_t> sequence;    // [tokens] index into `samples`
  std::vector<int64_t> offsets{0};  // [tokens + 1] into the selected ids
  std::vector<int64_t> sampled;     // [tokens] entry of the drawn token
  std::vector<double> log_q;        // [entries]
  std::vector<uint8_t> in_record;   // [entries]
  std::vector<double> log_q_tail;   // [tokens]
  std::vector<double> advantage;    // [tokens]
  std::vector<int64_t> staleness;   // [tokens] weight versions between the token's drawing and the batch
  std::shared_ptr<HeadQuery> query = std::make_shared<HeadQuery>();

  size_t tokens() const { return rows.size(); }
  /// The index into the batch of the sample that token t belongs to, and whether t is its first.
  size_t sample_of(size_t t) const { return samples[static_cast<size_t>(sequence[t])]; }
  bool begins_sample(size_t t) const { return t == 0 || sequence[t] != sequence[t - 1]; }
  /// Appends a sequence; gives the positions of its loss tokens.
  std::vector<size_t> append_sequence(size_t sample, std::span<const int32_t> tokens,
                                      std::span<const uint8_t> loss_mask);
  /// Asks for the drawn token alone, at the next loss token.
  void select_drawn(int32_t token, double token_log_q);
};

/// Cuts `samples` in order into runs of at most `max_tokens` tokens (at least one sample) and of one temperature.
std::vector<std::vector<size_t>> plan_micro_batches(std::span<const Trajectory> batch, std::span<const size_t> samples,
                                                    int64_t max_tokens);
/// `advantage` [batch][loss tokens]; empty: 0 throughout. With records, the head is asked for every recorded id besides
/// the drawn one; std::runtime_error names the sample that has none. Tokens drawn from a truncated distribution are
/// scored over their candidate set.
MicroBatch lay_out(std::span<const Trajectory> batch, std::span<const size_t> samples,
                   std::span<const std::vector<double>> advantage, bool with_records, int64_t vocabulary);
/// The trainer's log mass outside the *recorded* ids, from the head's mass outside the selected ones.
std::vector<double> tails_outside_records(const MicroBatch& micro, std::span<const double> log_p,
                                          std::span<const double> log_outside);

}  // namespace motley::algos
