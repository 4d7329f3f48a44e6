#include "kernels/adamw.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/elements.h"
#include "kernels/math.h"
#include "kernels/pointwise.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kRowThreads = 128;

template <class C>
GPU_DEVICE C sigmoid(C x) {
  return C{1} / (C{1} + exponential(-x));
}

template <class T>
GPU_KERNEL void silu_mul_kernel(SiluMulArgs<T> a) {
  map_elements(
      a.count,
      [&](int64_t i) {
        const Compute<T> gate = load(a.gate[i]);
        return store<T>(gate * sigmoid(gate) * load(a.up[i]));
      },
      [&](int64_t i, T y) { a.y[i] = y; });
}

template <class T>
struct SiluSlopes {
  T dgate, dup, y;
};
template <class T>
GPU_KERNEL void silu_mul_backward_kernel(SiluMulBackwardArgs<T> a) {
  using C = Compute<T>;
  map_elements(
      a.count,
      [&](int64_t i) {
        const C dy = load(a.dy[i]), gate = load(a.gate[i]), up = load(a.up[i]), s = sigmoid(gate);
        const C gated = gate * s, slope = s * (C{1} + gate * (C{1} - s));
        return SiluSlopes<T>{store<T>(dy * up * slope), store<T>(dy * gated), store<T>(gated * up)};
      },
      [&](int64_t i, const SiluSlopes<T>& slopes) {
        a.dgate[i] = slopes.dgate;
        a.dup[i] = slopes.dup;
        if (a.y != nullptr) a.y[i] = slopes.y;
      });
}

/// A row per block, a pair per thread.
template <class T>
GPU_KERNEL void rope_kernel(RopeArgs<T> a) {
  using C = Compute<T>;
  const int64_t row = block(), half = a.head_dim / 2;
  const C* cosines = a.cosines + a.positions[row] * half;
  const C* sines = a.sines + a.positions[row] * half;
  const int width = static_cast<int>(half), pairs = static_cast<int>(a.heads * half);
  for (int p = thread(); p < pairs; p += threads()) {
    const int i = p % width;
    const int64_t low = (row * a.heads + p / width) * a.head_dim + i, high = low + half;
    const C x = load(a.x[low]), z = load(a.x[high]), cosine = cosines[i], sine = a.inverse ? -sines[i] : sines[i];
    a.y[low] = store<T>(std::fma(x, cosine, -(z * sine)));
    a.y[high] = store<T>(std::fma(z, cosine, x * sine));
  }
}

template <class T>
struct AdamWElement {
  T weight, first, second;
};
template <class T>
GPU_KERNEL void adamw_kernel(AdamWArgs<T> a, AdamWNumbers<T> n) {
  map_elements(
      a.count,
      [&](int64_t i) {
        const T g = a.gradient[i] * n.scale;
        const T first = std::fma(n.rest1, g, n.beta1 * a.first[i]);
        const T second = std::fma(n.rest2 * g, g, n.beta2 * a.second[i]);
        const T step = first / (std::sqrt(second * n.inverse2) + n.eps);
        return AdamWElement<T>{std::fma(-n.rate, step, a.weight[i] * n.keep), first, second};
      },
      [&](int64_t i, const AdamWElement<T>& updated) {
        a.weight[i] = updated.weight;
        a.first[i] = updated.first;
        a.second[i] = updated.second;
      });
}

template <class T>
GPU_KERNEL void add_kernel(T* y, const T* a, const T* b, int64_t count) {
  map_elements(
      count, [&](int64_t i) { return store<T>(load(a[i]) + load(b[i])); }, [&](int64_t i, T sum) { y[i] = sum; });
}

}  // namespace

template <class T>
void silu_mul(const SiluMulArgs<T>& args) {
  launch(element_launch("silu_mul", args.count), silu_mul_kernel<T>, args);
}

template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args) {
  launch(element_launch("silu_mul_backward", args.count), silu_mul_backward_kernel<T>, args);
}

template <class T>
void rope(const RopeArgs<T>& args) {
  launch({"rope", args.rows, kRowThreads}, rope_kernel<T>, args);
}

template <class T>
void adamw(const AdamWArgs<T>& args) {
  launch(element_launch("adamw", args.count), adamw_kernel<T>, args, adamw_numbers(args));
}
template void adamw<float>(const AdamWArgs<float>&);
template void adamw<double>(const AdamWArgs<double>&);

template <class T>
void add(T* y, const T* a, const T* b, int64_t count) {
  launch(element_launch("add", count), add_kernel<T>, y, a, b, count);
}

#define MOTLEY_INSTANTIATE(T)                                        \
  template void silu_mul<T>(const SiluMulArgs<T>&);                  \
  template void silu_mul_backward<T>(const SiluMulBackwardArgs<T>&); \
  template void rope<T>(const RopeArgs<T>&);                         \
  template void add<T>(T*, const T*, const T*, int64_t);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
