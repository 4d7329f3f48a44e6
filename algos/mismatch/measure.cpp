#include "algos/mismatch/measure.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace motley::algos::mismatch {

Measurement measure(const TransformerConfig& given, const Parameters& masters, const kernels::NumericProfile& sampler,
                    const kernels::NumericProfile& trainer, const std::vector<std::vector<int32_t>>& prompts,
                    const Drawing& drawing, Detail detail, const Progress& progress) {
  const TransformerConfig config = given.resolved();
  MixedWeights weights(config, masters, sampler, trainer);
  const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, DType::f32);
  const Responses responses = draw_responses(
      std::make_shared<const SamplerWeights>(config, masters, sampler, 0, drawing.device), prompts, drawing);

  Assignment all_sampler(config.layers);
  all_sampler.give_all();
  const HeadInput q = score_responses(weights, all_sampler, table, responses);
  const HeadInput p = score_responses(weights, Assignment(config.layers), table, responses);
  Measurement result{sampler, trainer, {}, 0, 0, {}, responses.offsets, {}, {}, {}};
  result.gaps = compare_tokens(q, p, responses.ids, responses.vocabulary, responses.temperature);
  for (size_t t = 0; t < result.gaps.size(); ++t) {
    const float full = result.gaps[t].log_q, recorded = responses.log_q[t];
    if (std::bit_cast<uint32_t>(full) == std::bit_cast<uint32_t>(recorded)) continue;
    ++result.recorded_differs;
    result.recorded_difference = std::max(result.recorded_difference, std::fabs(double{full} - recorded));
  }
  result.summary = summarize(result.gaps, result.offsets);
  if (detail == Detail::off) return result;
  result.by_operation = attribute(weights, table, responses, p, operation_units(weights), progress);
  if (detail == Detail::classes) return result;
  result.by_layer = attribute(weights, table, responses, p, layer_units(weights), progress);
  result.pairs = attribute_pairs(weights, table, responses, p, progress);
  return result;
}

}  // namespace motley::algos::mismatch
