// Draws the tokens of one step where its logits are.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/device_staging.h"
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
/// back to the host besides it is what its record lists, and the host waits once, or twice where something is listed.
/// The same tokens and records on every device.
class TokenDrawer {
 public:
  TokenDrawer(const Device& device, int64_t vocabulary) : device_(device), vocabulary_(vocabulary), results_(device) {}
  void draw(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version);

  // The same in pieces, on devices other than the CPU: draw d is from row d.
  /// Sends what the draws ask for, and that of the last one once more up to `rows` of them.
  void send(std::span<const TokenDraw> draws, int64_t rows);
  /// Draws from each of the first `rows` rows of `logits`, for whom was sent.
  void launch(const float* logits, int64_t rows);
  /// Waits, and fills the outputs.
  void take(const float* logits, std::span<const TokenDraw> draws, uint64_t version);
  /// How often all this got other memory so far: until then `launch` does the same work for the same arguments.
  int64_t moves() const { return moves_; }

 private:
  struct Drawn {
    kernels::Draw draw;
    int32_t candidates = 0;  // of it
    bool on_host = false;    // it is yet to be drawn, from `row`
    std::vector<float> row;  // logits: over the temperature where they were drawn from; empty: nobody needs them
  };
  void list(const kernels::DrawTokenArgs& from, std::span<const TokenDraw> draws, std::vector<Drawn>& drawn);
  void draw_on_device(const Tensor& logits, std::span<const TokenDraw> draws, uint64_t version);
  void reserve(int64_t rows);
  kernels::DrawTokenArgs args(const float* logits, int64_t rows) const;

  Device device_;
  int64_t vocabulary_, capacity_ = 0;  // rows
  int64_t moves_ = 0;
  std::shared_ptr<void> memory_;  // of a DrawTokenArgs for so many rows
  kernels::Downloads results_;
};

}  // namespace motley
