// Draws the tokens of one step where its logits are.
#pragma once

#include <span>

#include "tensor/engine.h"

namespace motley {

/// A token to draw: from which row of the logits, for whom, at which place in its sequence, and where it goes.
struct TokenDraw {
  int64_t row = 0;
  const GenerateRequest* request = nullptr;
  int64_t position = 0;
  StepOutput* output = nullptr;
};

/// Fills every output's records with one token. Where a row gives no distribution its request ends as failed, with the
/// reason. logits [rows, vocabulary] are fp32 and stay as they are. On a device the token is drawn there; what comes
/// back to the host besides it is what its record lists. The same tokens and records on every device.
void draw_tokens(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version);

}  // namespace motley
