#include "kernels/cpu/elementwise_inner.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/highway_baseline.h"
#include "kernels/cpu/scratch.h"
#include "kernels/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise_inner.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

constexpr int64_t kTile = 256;  // elements decoded at a time, in the first cache

/// y = gate sigmoid(gate) up, with gate * sigmoid first.
inline void silu_tile(const float* gate, const float* up, float* y, int64_t count) {
  const RowVector one = hn::Set(RowTag(), 1.0f);
  int64_t i = 0;
  for (; i + kRowWidth <= count; i += kRowWidth) {
    const RowVector g = hn::LoadU(RowTag(), gate + i);
    const RowVector s = hn::Div(one, hn::Add(one, exponential_of(hn::Neg(g))));
    hn::StoreU(hn::Mul(hn::Mul(g, s), hn::LoadU(RowTag(), up + i)), RowTag(), y + i);
  }
  for (; i < count; ++i) y[i] = gate[i] * (1.0f / (1.0f + exponential(-gate[i]))) * up[i];
}
inline void silu_tile(const double* gate, const double* up, double* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = gate[i] * (1.0 / (1.0 + exponential(-gate[i]))) * up[i];
}

template <class T>
void silu_mul(const SiluMulArgs<T>& args, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (; begin < end; begin += kTile) {
    const int64_t count = std::min(kTile, end - begin);
    C buffers[3][kTile];
    C* y = compute_into(args.y + begin, buffers[2]);
    silu_tile(loaded(args.gate + begin, buffers[0], count), loaded(args.up + begin, buffers[1], count), y, count);
    store_from(args.y + begin, y, count);
  }
}

template <class C>
inline void silu_slopes(C dy, C gate, C up, C s, C* dgate, C* dup) {
  *dup = dy * (gate * s);
  *dgate = dy * up * (s * (C{1} + gate * (C{1} - s)));
}
/// y may be null.
inline void silu_backward_tile(const float* dy, const float* gate, const float* up, float* dgate, float* dup, float* y,
                               int64_t count) {
  const RowTag tag;
  const RowVector one = hn::Set(tag, 1.0f);
  int64_t i = 0;
  for (; i + kRowWidth <= count; i += kRowWidth) {
    const RowVector d = hn::LoadU(tag, dy + i), g = hn::LoadU(tag, gate + i), u = hn::LoadU(tag, up + i);
    const RowVector s = hn::Div(one, hn::Add(one, exponential_of(hn::Neg(g))));
    const RowVector slope = hn::Mul(s, hn::Add(one, hn::Mul(g, hn::Sub(one, s))));
    const RowVector gated = hn::Mul(g, s);
    hn::StoreU(hn::Mul(d, gated), tag, dup + i);
    hn::StoreU(hn::Mul(hn::Mul(d, u), slope), tag, dgate + i);
    if (y != nullptr) hn::StoreU(hn::Mul(gated, u), tag, y + i);
  }
  for (; i < count; ++i) {
    const float s = 1.0f / (1.0f + exponential(-gate[i]));
    silu_slopes(dy[i], gate[i], up[i], s, dgate + i, dup + i);
    if (y != nullptr) y[i] = gate[i] * s * up[i];
  }
}
inline void silu_backward_tile(const double* dy, const double* gate, const double* up, double* dgate, double* dup,
                               double* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double s = 1.0 / (1.0 + exponential(-gate[i]));
    silu_slopes(dy[i], gate[i], up[i], s, dgate + i, dup + i);
    if (y != nullptr) y[i] = gate[i] * s * up[i];
  }
}

template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (; begin < end; begin += kTile) {
    const int64_t count = std::min(kTile, end - begin);
    C buffers[6][kTile];
    const C* dy = loaded(args.dy + begin, buffers[0], count);
    const C* gate = loaded(args.gate + begin, buffers[1], count);
    const C* up = loaded(args.up + begin, buffers[2], count);
    C *dgate = compute_into(args.dgate + begin, buffers[3]), *dup = compute_into(args.dup + begin, buffers[4]);
    C* y = args.y == nullptr ? nullptr : compute_into(args.y + begin, buffers[5]);
    silu_backward_tile(dy, gate, up, dgate, dup, y, count);
    store_from(args.dgate + begin, dgate, count);
    store_from(args.dup + begin, dup, count);
    if (y != nullptr) store_from(args.y + begin, y, count);
  }
}

/// One head: pairs (i, i + half). y may be x.
inline void rotate(const float* x, float* y, const float* cosine, const float* sine, bool inverse, int64_t half) {
  const RowTag tag;
  const float sign = inverse ? -1.0f : 1.0f;
  const RowVector signs = hn::Set(tag, sign);
  int64_t i = 0;
  for (; i + kRowWidth <= half; i += kRowWidth) {
    const RowVector a = hn::LoadU(tag, x + i), b = hn::LoadU(tag, x + half + i);
    const RowVector c = hn::LoadU(tag, cosine + i), s = hn::Mul(signs, hn::LoadU(tag, sine + i));
    hn::StoreU(hn::MulSub(a, c, hn::Mul(b, s)), tag, y + i);
    hn::StoreU(hn::MulAdd(b, c, hn::Mul(a, s)), tag, y + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i], s = sign * sine[i];
    y[i] = std::fma(a, cosine[i], -(b * s));
    y[half + i] = std::fma(b, cosine[i], a * s);
  }
}
template <class T>
inline void rotate(const T* x, T* y, const Compute<T>* cosine, const Compute<T>* sine, bool inverse, int64_t half) {
  using C = Compute<T>;
  for (int64_t at = 0; at < half; at += kTile) {
    const int64_t count = std::min(kTile, half - at);
    C a[kTile], b[kTile], low[kTile], high[kTile];
    load(a, x + at, count);
    load(b, x + half + at, count);
    const C *cos_row = cosine + at, *sin_row = sine + at;
    if (inverse) {
      for (int64_t i = 0; i < count; ++i) low[i] = std::fma(a[i], cos_row[i], b[i] * sin_row[i]);
      for (int64_t i = 0; i < count; ++i) high[i] = std::fma(b[i], cos_row[i], -(a[i] * sin_row[i]));
    } else {
      for (int64_t i = 0; i < count; ++i) low[i] = std::fma(a[i], cos_row[i], -(b[i] * sin_row[i]));
      for (int64_t i = 0; i < count; ++i) high[i] = std::fma(b[i], cos_row[i], a[i] * sin_row[i]);
    }
    store(y + at, low, count);
    store(y + half + at, high, count);
  }
}

template <class T>
void rope(const RopeArgs<T>& args, int64_t begin, int64_t end) {
  const int64_t half = args.head_dim / 2;
  for (int64_t r = begin; r < end; ++r) {
    const Compute<T>* cosine = args.cosines + args.positions[r] * half;
    const Compute<T>* sine = args.sines + args.positions[r] * half;
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t at = (r * args.heads + h) * args.head_dim;
      rotate(args.x + at, args.y + at, cosine, sine, args.inverse, half);
    }
  }
}

template <class T>
void add(T* y, const T* a, const T* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = store<T>(load(a[i]) + load(b[i]));
}

inline float dot(const float* a, const float* b, int64_t count) {
  LaneSums sum;
  for_each_row_vector(a, count / kLanes * kLanes, 0.0f, [&](int64_t i, RowVector x, int64_t part) {
    sum.sums[part] = hn::MulAdd(x, hn::LoadU(RowTag(), b + i), sum.sums[part]);
  });
  float lanes[kLanes];
  sum.store(lanes);
  for (int64_t i = count / kLanes * kLanes, l = 0; i < count; ++i, ++l) lanes[l] = std::fma(a[i], b[i], lanes[l]);
  return add_lanes(lanes);
}
inline double dot(const double* a, const double* b, int64_t count) { return dot_lanes(a, b, count); }

template <class T>
void norm(const RmsNormArgs<T>& args, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t cols = args.cols;
  C* buffer = scratch<struct NormRows, C>(3 * cols);
  const C* gain = loaded(args.gain, buffer, cols);
  for (int64_t r = begin; r < end; ++r) {
    const C* x = loaded(args.x + r * cols, buffer + cols, cols);
    C* y = compute_into(args.y + r * cols, buffer + 2 * cols);
    const C mean = dot(x, x, cols) / static_cast<C>(cols);
    const C rstd = C{1} / std::sqrt(mean + static_cast<C>(args.eps));
    for (int64_t c = 0; c < cols; ++c) y[c] = x[c] * rstd * gain[c];
    store_from(args.y + r * cols, y, cols);
    if (args.rstd != nullptr) args.rstd[r] = rstd;
  }
}

template <class T>
void norm_dx(const RmsNormBackwardArgs<T>& args, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t cols = args.cols;
  C* buffer = scratch<struct NormRows, C>(5 * cols);
  const C* gain = loaded(args.gain, buffer, cols);
  C* scaled = buffer + 3 * cols;
  for (int64_t r = begin; r < end; ++r) {
    const C* x = loaded(args.x + r * cols, buffer + cols, cols);
    const C* dy = loaded(args.dy + r * cols, buffer + 2 * cols, cols);
    C* dx = compute_into(args.dx + r * cols, buffer + 4 * cols);
    for (int64_t c = 0; c < cols; ++c) scaled[c] = dy[c] * gain[c];
    const C rstd = args.rstd[r];
    const C pull = dot(scaled, x, cols) / static_cast<C>(cols) * rstd * rstd;
    for (int64_t c = 0; c < cols; ++c) dx[c] = rstd * std::fma(-x[c], pull, scaled[c]);
    store_from(args.dx + r * cols, dx, cols);
  }
}

template <class T>
void norm_dgain(const RmsNormBackwardArgs<T>& args, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const T* x = args.x + r * args.cols;
    const T* dy = args.dy + r * args.cols;
    const Compute<T> rstd = args.rstd[r];
    Compute<T>* dgain = args.dgain;
    for (int64_t c = begin; c < end; ++c) dgain[c] = std::fma(load(dy[c]), load(x[c]) * rstd, dgain[c]);
  }
}

template <class T>
constexpr ElementLoops<T> kLoops{silu_mul<T>, silu_mul_backward<T>, rope<T>,      add<T>,
                                 norm<T>,     norm_dx<T>,           norm_dgain<T>};
const AllElementLoops& all_loops() {
  static constexpr AllElementLoops kAll{kLoops<float>, kLoops<double>, kLoops<bf16>, kLoops<fp16>};
  return kAll;
}

template <class T>
void adamw_as(const AdamWArgs<T>& args, const AdamWNumbers<T>& n, int64_t begin, int64_t end) {
  T *HWY_RESTRICT weight = args.weight, *HWY_RESTRICT firsts = args.first, *HWY_RESTRICT seconds = args.second;
  const T* HWY_RESTRICT gradient = args.gradient;
  for (int64_t i = begin; i < end; ++i) {
    const T g = gradient[i] * n.scale;
    const T first = std::fma(n.rest1, g, n.beta1 * firsts[i]);
    const T second = std::fma(n.rest2 * g, g, n.beta2 * seconds[i]);
    firsts[i] = first;
    seconds[i] = second;
    const T step = first / (std::sqrt(second * n.inverse2) + n.eps);
    weight[i] = std::fma(-n.rate, step, weight[i] * n.keep);
  }
}
void adamw_f32(const AdamWArgs<float>& args, const AdamWNumbers<float>& n, int64_t begin, int64_t end) {
  adamw_as(args, n, begin, end);
}
void adamw_f64(const AdamWArgs<double>& args, const AdamWNumbers<double>& n, int64_t begin, int64_t end) {
  adamw_as(args, n, begin, end);
}

double squares(const float* x, int64_t count) {
  const hn::CappedTag<double, kLanes> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(wide)), kVectors = kLanes / kWidth;
  hn::Vec<decltype(wide)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(wide);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto value = hn::PromoteTo(wide, hn::LoadU(narrow, x + i + v * kWidth));
      sums[v] = hn::Add(sums[v], hn::Mul(value, value));
    }
  }
  double lanes[kLanes];
  for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], wide, lanes + v * kWidth);
  for (int64_t l = 0; i + l < count; ++l) lanes[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  return add_lanes(lanes);
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(all_loops);
HWY_EXPORT(adamw_f32);
HWY_EXPORT(adamw_f64);
HWY_EXPORT(squares);

const AllElementLoops& element_loops() { return HWY_DYNAMIC_DISPATCH(all_loops)(); }
void adamw_range(const AdamWArgs<float>& args, const AdamWNumbers<float>& n, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(adamw_f32)(args, n, begin, end);
}
void adamw_range(const AdamWArgs<double>& args, const AdamWNumbers<double>& n, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(adamw_f64)(args, n, begin, end);
}
double square_sum(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(squares)(x, count); }

}  // namespace motley::kernels::cpu
#endif
