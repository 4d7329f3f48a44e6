// How far a sampler is from the trainer, by name: a sum of pieces such as "nvfp4+stale=4+top-p=0.9".
#pragma once

#include <cstdint>
#include <string>

namespace motley::algos::audit {

struct Mismatch {
  std::string name;     // as it was written
  std::string profile;  // the sampler computes in this numeric profile; empty: as the trainer, in float64
  int64_t stale = 0;    // weights so many exact gradient steps before the start of the batch, 0 to kWalk
  double scale = 1.0;   // its logits are multiplied by this, > 0
  double noise = 0.0;   // then a normal number of this standard deviation is added to each, >= 0
  double top_p = 1.0;   // then the smallest set of most probable ids with this mass is kept, in (0, 1]
};
/// Gradient steps that lead to the trainer's weights.
inline constexpr int64_t kWalk = 16;

/// Pieces: none, PROFILE, stale=K, scale=X, noise=S, top-p=P, each at most once. Throws std::invalid_argument with what
/// is allowed.
Mismatch parse_mismatch(const std::string& text);

}  // namespace motley::algos::audit
