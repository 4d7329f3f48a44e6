// The forward pass of a model whose operations are computed by two numeric profiles, as an Assignment says. Tensors
// hold floats; each operation rounds its own result. With everything assigned to one profile the pass gives, bit for
// bit, what an engine of that profile gives (for invariant kernels; tests/algos/mismatch_pass_test.cpp).
#pragma once

#include <map>
#include <memory>

#include "algos/mismatch/operations.h"
#include "tensor/engine.h"

namespace motley::algos::mismatch {

/// The weights of one model as either profile holds them: made when they are first asked for, then kept.
class MixedWeights {
 public:
  /// `masters` must outlive it. Throws std::invalid_argument for a profile that no engine computes (fp64 output).
  MixedWeights(const TransformerConfig& config, const Parameters& masters, kernels::NumericProfile sampler,
               kernels::NumericProfile trainer);
  const TransformerConfig& config() const { return config_; }
  const kernels::NumericProfile& profile(bool sampler) const { return sampler ? sampler_ : trainer_; }
  /// Projections of float rows; each argument says whether that part is the sampler's.
  const SamplerWeights& products(bool formats, bool order, bool accumulation);
  /// An embedding, gain or head in the side's output type, as floats.
  const Tensor& parameter(const std::string& name, bool sampler);

 private:
  TransformerConfig config_;
  const Parameters& masters_;
  kernels::NumericProfile sampler_, trainer_;
  std::map<int, std::unique_ptr<const SamplerWeights>> products_;
  std::map<std::pair<std::string, bool>, Tensor> parameters_;
};

/// Final hidden states, after the last norm, as floats [rows, width] of all tokens of `sequences`.
Tensor mixed_hidden(MixedWeights& weights, const Assignment& assignment, const RopeTable& table,
                    const PackedSequences& sequences);
/// The head's weight as the assignment has it, as floats [vocabulary, width].
const Tensor& mixed_head(MixedWeights& weights, const Assignment& assignment);

}  // namespace motley::algos::mismatch
