// A whole measurement of mismatch: responses drawn by the sampler's profile, both scores of them, the summary, and
// where the difference comes from.
#pragma once

#include <optional>

#include "algos/mismatch/attribution.h"
#include "algos/mismatch/summary.h"

namespace motley::algos::mismatch {

enum class Detail : uint8_t { off, classes, layers };  // of the attribution

struct Measurement {
  kernels::NumericProfile sampler, trainer;
  Summary summary;
  // Drawn tokens whose recorded log q is not, bit for bit, that of the full pass, and by how much at most. The pass is
  // the CPU's: of an engine on another device this is what its products do otherwise.
  int64_t recorded_differs = 0;
  double recorded_difference = 0;
  std::vector<TokenGap> gaps;               // of every drawn token
  std::vector<int64_t> offsets;             // of responses into gaps
  std::optional<Attribution> by_operation;  // Detail::classes and layers
  std::optional<Attribution> by_layer;      // Detail::layers
  std::vector<std::vector<double>> pairs;   // Detail::layers: KL alone by [operation][layer]; else empty
};

/// `masters` are f32. Throws as draw_responses does, and std::invalid_argument for a profile that no engine computes.
Measurement measure(const TransformerConfig& config, const Parameters& masters, const kernels::NumericProfile& sampler,
                    const kernels::NumericProfile& trainer, const std::vector<std::vector<int32_t>>& prompts,
                    const Drawing& drawing, Detail detail, const Progress& progress = {});

}  // namespace motley::algos::mismatch
