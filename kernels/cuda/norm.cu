#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/lanes.h"
#include "kernels/elements.h"
#include "kernels/norm.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kThreads / kLanes;  // of a block: one per half-warp
constexpr int kColumns = 128;             // of a block, one per thread

template <class T>
GPU_KERNEL void rms_norm_kernel(RmsNormArgs<T> a) {
  using C = Compute<T>;
  const int lane = thread() % kLanes;
  const int64_t row = block() * kRows + thread() / kLanes;
  const int64_t cols = row < a.rows ? a.cols : 0;  // a half-warp without a row still takes part in the shuffles
  const T* x = a.x + row * a.cols;
  C sum{0};
  for (int64_t c = lane; c < cols; c += kLanes) sum = std::fma(load(x[c]), load(x[c]), sum);
  const C mean = add_lanes(sum) / static_cast<C>(a.cols);
  const C rstd = C{1} / std::sqrt(mean + static_cast<C>(a.eps));
  T* y = a.y + row * a.cols;
  for (int64_t c = lane; c < cols; c += kLanes) y[c] = store<T>(load(x[c]) * rstd * load(a.gain[c]));
  if (lane == 0 && row < a.rows && a.rstd != nullptr) a.rstd[row] = rstd;
}

template <class T>
GPU_KERNEL void rms_norm_dx_kernel(RmsNormBackwardArgs<T> a) {
  using C = Compute<T>;
  const int lane = thread() % kLanes;
  const int64_t row = block() * kRows + thread() / kLanes;
  const int64_t cols = row < a.rows ? a.cols : 0;
  const T* x = a.x + row * a.cols;
  const T* dy = a.dy + row * a.cols;
  C sum{0};
  for (int64_t c = lane; c < cols; c += kLanes) sum = std::fma(load(dy[c]) * load(a.gain[c]), load(x[c]), sum);
  sum = add_lanes(sum);
  if (row >= a.rows) return;
  const C rstd = a.rstd[row];
  const C pull = sum / static_cast<C>(a.cols) * rstd * rstd;
  T* dx = a.dx + row * a.cols;
  for (int64_t c = lane; c < cols; c += kLanes)
    dx[c] = store<T>(rstd * std::fma(-load(x[c]), pull, load(dy[c]) * load(a.gain[c])));
}

/// One chain over the rows per column.
template <class T>
GPU_KERNEL void rms_norm_dgain_kernel(RmsNormBackwardArgs<T> a) {
  const int64_t c = block() * kColumns + thread();
  if (c >= a.cols) return;
  Compute<T> sum = a.dgain[c];
  for (int64_t r = 0; r < a.rows; ++r)
    sum = std::fma(load(a.dy[r * a.cols + c]), load(a.x[r * a.cols + c]) * a.rstd[r], sum);
  a.dgain[c] = sum;
}

}  // namespace

template <class T>
void rms_norm(const RmsNormArgs<T>& args) {
  launch({"rms_norm", pieces(args.rows, kRows), kThreads}, rms_norm_kernel<T>, args);
}

template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args) {
  launch({"rms_norm_dx", pieces(args.rows, kRows), kThreads}, rms_norm_dx_kernel<T>, args);
  launch({"rms_norm_dgain", pieces(args.cols, kColumns), kColumns}, rms_norm_dgain_kernel<T>, args);
}

#define MOTLEY_INSTANTIATE(T)                       \
  template void rms_norm<T>(const RmsNormArgs<T>&); \
  template void rms_norm_backward<T>(const RmsNormBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
