#include "kernels/arrays.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/lanes.h"
#include "kernels/elements.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 128;

template <class T>
GPU_KERNEL void multiply_kernel(T* y, const T* a, const T* b, int64_t count) {
  const int64_t i = block() * kThreads + thread();
  if (i < count) y[i] = store<T>(load(a[i]) * load(b[i]));
}

template <class T>
GPU_KERNEL void fill_kernel(T* y, const Compute<T>* value, int64_t count) {
  const int64_t i = block() * kThreads + thread();
  if (i < count) y[i] = store<T>(*value);
}

/// One block: the lanes of a sum are chains over all of it.
template <class T>
GPU_KERNEL void sum_kernel(Compute<T>* y, const T* x, int64_t count) {
  GPU_SHARED(double, tile, kTile);
  const double total = sum_lanes(
      count, [&](int64_t i) { return static_cast<double>(load(x[i])); }, tile);
  if (thread() == 0) *y = static_cast<Compute<T>>(total);
}

/// One thread per column, so that a row named twice is added to in order.
template <class T>
GPU_KERNEL void add_rows_kernel(AddRowsArgs<T> a) {
  const int64_t c = block() * kThreads + thread();
  if (c >= a.cols) return;
  for (int64_t i = 0; i < a.count; ++i) {
    T& into = a.into[a.rows[i] * a.cols + c];
    into = store<T>(load(into) + load(a.from[i * a.cols + c]));
  }
}

}  // namespace

template <class T>
void multiply(T* y, const T* a, const T* b, int64_t count) {
  launch({"multiply", pieces(count, kThreads), kThreads}, multiply_kernel<T>, y, a, b, count);
}

template <class T>
void fill(T* y, const Compute<T>* value, int64_t count) {
  launch({"fill", pieces(count, kThreads), kThreads}, fill_kernel<T>, y, value, count);
}

template <class T>
void sum(Compute<T>* y, const T* x, int64_t count) {
  launch({"sum", 1, kThreads}, sum_kernel<T>, y, x, count);
}

template <class T>
void add_rows(const AddRowsArgs<T>& args) {
  launch({"add_rows", pieces(args.cols, kThreads), kThreads}, add_rows_kernel<T>, args);
}

#define MOTLEY_INSTANTIATE(T)                                 \
  template void multiply<T>(T*, const T*, const T*, int64_t); \
  template void fill<T>(T*, const Compute<T>*, int64_t);      \
  template void sum<T>(Compute<T>*, const T*, int64_t);       \
  template void add_rows<T>(const AddRowsArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
