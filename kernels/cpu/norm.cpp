#include "kernels/norm.h"

#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {
int64_t row_grain(int64_t cols) { return 1 + kPieceElements / (cols + 1); }
}  // namespace

template <class T>
void rms_norm(const RmsNormArgs<T>& args) {
  using C = Compute<T>;
  const int64_t cols = args.cols;
  parallel_for(args.rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    C* buffer = scratch<struct NormRows, C>(3 * cols);
    const C* gain = loaded(args.gain, buffer, cols);
    for (int64_t r = begin; r < end; ++r) {
      const C* x = loaded(args.x + r * cols, buffer + cols, cols);
      C* y = compute_into(args.y + r * cols, buffer + 2 * cols);
      const C mean = dot_lanes(x, x, cols) / static_cast<C>(cols);
      const C rstd = C{1} / std::sqrt(mean + static_cast<C>(args.eps));
      for (int64_t c = 0; c < cols; ++c) y[c] = x[c] * rstd * gain[c];
      store_from(args.y + r * cols, y, cols);
      if (args.rstd != nullptr) args.rstd[r] = rstd;
    }
  });
}

template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args) {
  using C = Compute<T>;
  const int64_t cols = args.cols;
  parallel_for(args.rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    C* buffer = scratch<struct NormRows, C>(5 * cols);
    const C* gain = loaded(args.gain, buffer, cols);
    C* scaled = buffer + 3 * cols;
    for (int64_t r = begin; r < end; ++r) {
      const C* x = loaded(args.x + r * cols, buffer + cols, cols);
      const C* dy = loaded(args.dy + r * cols, buffer + 2 * cols, cols);
      C* dx = compute_into(args.dx + r * cols, buffer + 4 * cols);
      for (int64_t c = 0; c < cols; ++c) scaled[c] = dy[c] * gain[c];
      const C rstd = args.rstd[r];
      const C pull = dot_lanes(scaled, x, cols) / static_cast<C>(cols) * rstd * rstd;
      for (int64_t c = 0; c < cols; ++c) dx[c] = rstd * std::fma(-x[c], pull, scaled[c]);
      store_from(args.dx + r * cols, dx, cols);
    }
  });
  parallel_for(cols, 16 + kPieceElements / (args.rows + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < args.rows; ++r) {
      const T* x = args.x + r * cols;
      const T* dy = args.dy + r * cols;
      const C rstd = args.rstd[r];
      for (int64_t c = begin; c < end; ++c) args.dgain[c] = std::fma(load(dy[c]), load(x[c]) * rstd, args.dgain[c]);
    }
  });
}

#define MOTLEY_INSTANTIATE(T)                       \
  template void rms_norm<T>(const RmsNormArgs<T>&); \
  template void rms_norm_backward<T>(const RmsNormBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
