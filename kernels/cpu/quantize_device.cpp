#include "kernels/quantize_device.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/quantize.h"

namespace motley::kernels::cpu {

void quantize(const QuantizeArgs& args) {
  const size_t count = static_cast<size_t>(args.rows * args.cols);
  const QuantizedMatrix m = kernels::quantize({args.values, count}, args.rows, args.cols, args.how, args.shared_amax);
  std::copy(m.codes.begin(), m.codes.end(), args.codes);
  std::copy(m.block_codes.begin(), m.block_codes.end(), args.block_codes);
  std::copy(m.scales.begin(), m.scales.end(), args.scales);
}

void quantize_activations(const QuantizeActivationsArgs& args) {
  check_activation(args.how);
  const int64_t cols = args.cols, blocks = (cols + 127) / 128;
  const bool blocked = args.how.scaling == Scaling::block1x128;
  parallel_for(args.rows, 1 + (int64_t{1} << 14) / (cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* scales = blocked ? args.block_scales + r * blocks : nullptr;
      args.factors[r] = quantize_activation(args.x + r * cols, cols, args.how, scales);
    }
  });
}

}  // namespace motley::kernels::cpu
