#include "kernels/pointwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/math.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

constexpr int64_t kTile = 256;  // elements decoded at a time, in the first cache

/// body(begin, count) over tiles of at most kTile elements.
template <class Body>
void for_each_tile(int64_t count, Body body) {
  parallel_for(count, kPieceElements, [&](int64_t begin, int64_t end) {
    for (; begin < end; begin += kTile) body(begin, std::min(kTile, end - begin));
  });
}

template <class C>
inline C sigmoid(C x) {
  return C{1} / (C{1} + exponential(-x));
}

}  // namespace

template <class T>
void silu_mul(const SiluMulArgs<T>& args) {
  using C = Compute<T>;
  for_each_tile(args.count, [&](int64_t at, int64_t count) {
    C buffers[3][kTile];
    const C* gate = loaded(args.gate + at, buffers[0], count);
    const C* up = loaded(args.up + at, buffers[1], count);
    for (int64_t i = 0; i < count; ++i) buffers[2][i] = gate[i] * sigmoid(gate[i]) * up[i];
    store(args.y + at, buffers[2], count);
  });
}

template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args) {
  using C = Compute<T>;
  for_each_tile(args.count, [&](int64_t at, int64_t count) {
    C buffers[5][kTile];
    const C* dy = loaded(args.dy + at, buffers[0], count);
    const C* gate = loaded(args.gate + at, buffers[1], count);
    const C* up = loaded(args.up + at, buffers[2], count);
    C* dgate = buffers[3];
    C* dup = buffers[4];
    for (int64_t i = 0; i < count; ++i) {
      const C s = sigmoid(gate[i]);
      dup[i] = dy[i] * (gate[i] * s);
      dgate[i] = dy[i] * up[i] * (s * (C{1} + gate[i] * (C{1} - s)));
    }
    store(args.dgate + at, dgate, count);
    store(args.dup + at, dup, count);
  });
}

template <class T>
void rope(const RopeArgs<T>& args) {
  using C = Compute<T>;
  const int64_t half = args.head_dim / 2, row = args.heads * args.head_dim;
  parallel_for(args.rows, 1 + kPieceElements / (row + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const C* cosine = args.cosines + args.positions[r] * half;
      const C* sine = args.sines + args.positions[r] * half;
      const C sign = args.inverse ? C{-1} : C{1};
      for (int64_t h = 0; h < args.heads; ++h) {
        const T* x = args.x + r * row + h * args.head_dim;
        T* y = args.y + r * row + h * args.head_dim;
        for (int64_t i = 0; i < half; ++i) {
          const C a = load(x[i]), b = load(x[i + half]), s = sign * sine[i];
          y[i] = store<T>(std::fma(a, cosine[i], -(b * s)));
          y[i + half] = store<T>(std::fma(b, cosine[i], a * s));
        }
      }
    }
  });
}

template <class T>
void embedding(const EmbeddingArgs<T>& args) {
  parallel_for(args.rows, 1 + kPieceElements / (args.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::copy_n(args.table + args.ids[r] * args.cols, args.cols, args.y + r * args.cols);
  });
}

template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args) {
  parallel_for(args.cols, 16 + kPieceElements / (args.rows + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < args.rows; ++r) {
      Compute<T>* out = args.dtable + args.ids[r] * args.cols;
      const T* dy = args.dy + r * args.cols;
      for (int64_t c = begin; c < end; ++c) out[c] += load(dy[c]);
    }
  });
}

template <class T>
void adamw(const AdamWArgs<T>& args) {
  const T scale = static_cast<T>(args.gradient_scale), eps = static_cast<T>(args.eps);
  const T beta1 = static_cast<T>(args.beta1), beta2 = static_cast<T>(args.beta2);
  const T rest1 = static_cast<T>(1.0 - args.beta1), rest2 = static_cast<T>(1.0 - args.beta2);
  const T rate = static_cast<T>(args.lr / (1.0 - whole_power(args.beta1, args.step)));
  const T inverse2 = static_cast<T>(1.0 / (1.0 - whole_power(args.beta2, args.step)));
  const T keep = static_cast<T>(1.0 - args.lr * args.weight_decay);
  parallel_for(args.count, kPieceElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T g = args.gradient[i] * scale;
      const T first = std::fma(rest1, g, beta1 * args.first[i]);
      const T second = std::fma(rest2 * g, g, beta2 * args.second[i]);
      args.first[i] = first;
      args.second[i] = second;
      const T step = first / (std::sqrt(second * inverse2) + eps);
      args.weight[i] = std::fma(-rate, step, args.weight[i] * keep);
    }
  });
}
template void adamw<float>(const AdamWArgs<float>&);
template void adamw<double>(const AdamWArgs<double>&);

template <class T>
void add(T* y, const T* a, const T* b, int64_t count) {
  parallel_for(count, kPieceElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = store<T>(load(a[i]) + load(b[i]));
  });
}

#define MOTLEY_INSTANTIATE(T)                                           \
  template void silu_mul<T>(const SiluMulArgs<T>&);                     \
  template void silu_mul_backward<T>(const SiluMulBackwardArgs<T>&);    \
  template void rope<T>(const RopeArgs<T>&);                            \
  template void embedding<T>(const EmbeddingArgs<T>&);                  \
  template void embedding_backward<T>(const EmbeddingBackwardArgs<T>&); \
  template void add<T>(T*, const T*, const T*, int64_t);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
