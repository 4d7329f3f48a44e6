// Imposed staleness needs the weights of past versions, also after a resume: they travel with the optimizer's state in
// the checkpoint, as further tensors.
#pragma once

#include <memory>
#include <vector>

#include "tensor/optimizer.h"

namespace motley::actors {

/// Adds `history` (oldest first) to the state.
void add_history(AdamW::State& state, const std::vector<std::shared_ptr<const Parameters>>& history);
/// Removes it from the state and gives it back.
std::vector<std::shared_ptr<const Parameters>> take_history(AdamW::State& state, const TransformerConfig& config);

}  // namespace motley::actors
