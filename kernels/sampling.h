// Drawing a token from logits: temperature, top-k, top-p, one uniform number. Contract: depends on the row alone, with
// the same bits on every instruction set and device. Nothing sorts the vocabulary: a few passes find the cut.
//
// Masses are integers (kernels/sampling_mass.h), so that sums have no order: a set or a draw can differ from that of
// exact probabilities only where top_p or the uniform number lies within 2^-42 times the vocabulary of a boundary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/philox.h"

namespace motley::kernels {

struct SamplingRule {
  double temperature = 1.0;  // 0: greedy, the first largest logit
  double top_p = 1.0;        // in (0, 1]: the smallest set of most probable ids whose mass reaches top_p
  int32_t top_k = 0;         // 0: no limit
};

/// One drawn token. The support is the whole vocabulary when `candidates` is empty.
struct Draw {
  int32_t id = 0;
  float log_q = 0;                  // under the distribution that it was drawn from, as kernels/head.h computes it
  std::vector<int32_t> candidates;  // ascending; ties at the cut go to the lower id
};

/// How a row is drawn. Its uniform number is that of the key and the position (random_uniform).
struct DrawRequest {
  SamplingRule rule;
  RandomKey key;
  uint32_t position = 0;
};
inline constexpr int32_t kNotDrawn = -1;
struct DrawTokenArgs {
  const float* logits;  // [rows, vocabulary], the head's raw products
  float* scaled;        // [rows, vocabulary], ends as logits / temperature; may be logits
  int64_t rows, vocabulary;
  const DrawRequest* requests;  // [rows]
  int32_t* ids;                 // [rows]; kNotDrawn where the row gives no distribution: see cpu::draw_token
  float* log_q;                 // [rows]; NaN where nothing was drawn
  int32_t* candidates;          // [rows, vocabulary], of which each row's first candidate_counts are set
  int32_t* candidate_counts;    // [rows]; 0: the whole vocabulary
};
struct MostProbableArgs {
  const float* z;  // [rows, vocabulary], no NaN
  int64_t rows, vocabulary, k;
  int32_t* ids;  // [rows, min(k, vocabulary)], ascending
};

namespace cpu {
/// One row. `logits` [vocabulary] are the head's raw products; `scaled` [vocabulary] is scratch and ends as logits /
/// temperature. Throws std::runtime_error when a logit is NaN or +inf, when none is finite, and for more than
/// kMostSampledIds of them. Greedy draws report log_q at temperature 1.
Draw draw_token(const float* logits, int64_t vocabulary, const SamplingRule& rule, double uniform,
                std::vector<float>& scaled);
void draw_token(const DrawTokenArgs& args);
/// The k ids (at least 1) with the largest z (no NaN), ties by lower id, ascending; valid until this thread's next
/// call.
std::span<const int32_t> most_probable(const float* z, int64_t vocabulary, int64_t k);
void most_probable(const MostProbableArgs& args);
}  // namespace cpu
namespace cuda {
void draw_token(const DrawTokenArgs& args);
void most_probable(const MostProbableArgs& args);
}  // namespace cuda
namespace emulated {
void draw_token(const DrawTokenArgs& args);
void most_probable(const MostProbableArgs& args);
}  // namespace emulated
}  // namespace motley::kernels
