// Two next-token distributions at the same context, token by token: the sampler's q and the trainer's p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace motley::algos::mismatch {

/// One token. Probabilities are of the logits divided by the temperature, over the ids that may be drawn.
struct TokenGap {
  float log_q = 0, log_p = 0;   // of the drawn token, in float with the bits that an engine or a trainer reports
  double gap = 0;               // log q - log p of the drawn token, from float logits, in double
  double difference = 0;        // p - q of the drawn token
  double kl_qp = 0, kl_pq = 0;  // KL(q || p) and KL(p || q) over the whole vocabulary, in nats
  double variation = 0;         // total variation distance
  double entropy = 0;           // of p, in nats
  double top1 = 0;              // the largest p
  bool same_top1 = true;        // the same most probable id (the lowest, of equals)
  bool finite = true;           // false: a logit of either side is NaN or infinite, and all else is 0
};

/// What one side brings: floats.
struct HeadInput {
  Tensor hidden;  // [rows, width], after the final norm
  Tensor weight;  // [vocabulary, width]
};

/// Row r is compared for the drawn token ids[r]; only ids below `vocabulary` can be drawn. Each KL is a sum of terms
/// q (e^d - 1 - d), d = log p - log q, none of which is negative: it is exactly 0 where the logits are equal, and a
/// small one does not cancel. Throws std::invalid_argument for a temperature that is not positive and finite.
std::vector<TokenGap> compare_tokens(const HeadInput& q, const HeadInput& p, std::span<const int32_t> ids,
                                     int64_t vocabulary, double temperature);

/// One row, from logits already divided by the temperature (log_q and log_p are left 0).
TokenGap compare_logits(std::span<const float> zq, std::span<const float> zp, int32_t drawn);

}  // namespace motley::algos::mismatch
