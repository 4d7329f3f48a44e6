// Activations of one token: dynamic scales over that token alone, so that a row never depends on its batch.
#include <stdexcept>

#include "kernels/cpu/quantize_row.h"
#include "kernels/quantize.h"

namespace motley::kernels {

void check_activation(const Quantization& how) {
  check_quantization(how);
  if (how.scaling == Scaling::block128x128) {
    throw std::invalid_argument("quantize: 128x128 blocks of activations would mix tokens");
  }
}

float quantize_activation(float* x, int64_t cols, const Quantization& how, float* block_scales) {
  return cpu::round_row(x, cols, how, block_scales);
}

}  // namespace motley::kernels
