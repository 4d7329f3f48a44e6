// Drawing a token from logits: temperature, top-k, top-p, one uniform number. Contract: depends on the row alone, with
// the same bits on every instruction set. Nothing sorts the vocabulary: a few vector passes find the cut.
//
// Mass is exponential(z - largest), summed in float64 in fixed orders: the total in blocks of 1024 places, each in 16
// virtual lanes; the mass that top-p counts from the largest down, in a few ranges of z and then one by one. Such a sum
// errs by at most 2^-53 of itself per addition on its path, so a set or a draw can differ from the exact one only where
// top_p or the uniform number lies that close to a boundary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

namespace cpu {
/// `logits` [vocabulary] are the head's raw products; `scaled` [vocabulary] is scratch and ends as logits /
/// temperature. Throws std::runtime_error when no logit is finite. Greedy draws report log_q at temperature 1.
Draw draw_token(const float* logits, int64_t vocabulary, const SamplingRule& rule, double uniform,
                std::vector<float>& scaled);
/// The k ids with the largest z (no NaN), ties by lower id, ascending; valid until this thread's next call.
std::span<const int32_t> most_probable(const float* z, int64_t vocabulary, int64_t k);
}  // namespace cpu
}  // namespace motley::kernels
