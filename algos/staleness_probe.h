// Mismatch told from staleness: a few samples are scored again under the weights that their tokens were drawn with,
// which gives pi_sampled, and
//   log q - log p = (log q - log pi_sampled) + (log pi_sampled - log p).
//                    mismatch of numerics        staleness of the weights
// A sampler of the trainer's own profile has a mismatch of exactly 0, unless weights were swapped in mid-reply: then
// its KV cache is of older weights than the token, and no version of the weights gives q again.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "algos/learner.h"
#include "algos/trainer_pass.h"

namespace motley::algos {

/// The masters of a weight version, or null if they are kept no more. Asked for one version after the other.
using WeightsOfVersion = std::function<const Parameters*(uint64_t version)>;

/// `samples`: indices into `batch`; every sample's batch_version must be kept. Scores each of them once per version
/// that its tokens have, and once under batch_version, in micro-batches of at most `max_tokens`. Gives, by name:
/// probe/tokens, probe/tokens_too_old (their version is kept no more; the rest is about the others),
/// probe/kl/sampler_trainer = probe/kl/mismatch + probe/kl/staleness (means of the differences above),
/// probe/k3/mismatch and probe/k3/staleness (r - 1 - log r with r = pi_sampled / q and p / pi_sampled), and
/// group/<name>/probe/... of them per sampler group.
Metrics staleness_probe(const TrainerPass& pass, std::span<const Trajectory> batch, std::span<const size_t> samples,
                        const WeightsOfVersion& weights, int64_t max_tokens);

/// About `wanted` of the usable samples of a batch, spread over it evenly: the same for the same batch.
std::vector<size_t> probe_samples(std::span<const Trajectory> batch, int64_t wanted, int64_t vocabulary,
                                  int64_t max_positions);

}  // namespace motley::algos
