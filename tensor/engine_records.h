// Draws one token from a row of logits and writes down what design "The flow of data", 4 asks for.
#pragma once

#include <span>
#include <vector>

#include "tensor/engine.h"

namespace motley {

/// Appends one token to `out`. `logits` are the ids that may be drawn; `position` is the new token's place in its
/// sequence; `scaled` is scratch. Throws std::runtime_error with the reason when the logits give no distribution.
void draw_and_record(std::span<const float> logits, const GenerateRequest& request, int64_t position, uint64_t version,
                     std::vector<float>& scaled, TokenRecords& out);

/// The second half: writes down a token that was drawn. `z` are the logits over the temperature of the ids that could
/// be drawn, changed; for a drawn token without candidates and RecordKind::sampled it is not looked at.
void record_draw(const kernels::Draw& draw, std::span<float> z, const GenerateRequest& request, uint64_t version,
                 TokenRecords& out);

}  // namespace motley
