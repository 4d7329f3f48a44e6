// Drawing a token from logits: temperature, top-k, top-p, one uniform number. Contract: depends on the row alone.
#pragma once

#include <cstdint>
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
}  // namespace cpu
}  // namespace motley::kernels
