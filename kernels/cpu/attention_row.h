// One query row of one head: the same code for the packed pass and for the paged cache, so their bits agree.
//
// Keys lie in blocks of sixteen absolute positions, [block][head_dim][16]: a score is one chain over head_dim, and
// scores of a block are the lanes of a vector. Lanes after the last key hold zeros, and weight exactly 0.
#pragma once

// The baseline must come first.
// clang-format off
#include "kernels/cpu/highway_baseline.h"
#include <hwy/highway.h>
// clang-format on

#include <limits>

#include "kernels/cpu/lanes.h"
#include "kernels/math.h"

namespace motley::kernels::cpu {

constexpr int64_t kKeyBlock = 16;
constexpr int64_t padded_keys(int64_t count) { return (count + kKeyBlock - 1) / kKeyBlock * kKeyBlock; }

static_assert(!HWY_ARCH_X86 || HWY_STATIC_TARGET <= HWY_AVX2, "scores are chains of fused multiply-adds");
namespace hn = hwy::HWY_NAMESPACE;
/// The compiler's baseline vectors.
template <class C>
using VectorTag = hn::CappedTag<C, kKeyBlock>;

/// scores[j] = scale * (q . key j) for j < count, -inf up to the end of the last block.
template <class C>
inline void attention_scores(const C* q, const C* blocks, int64_t count, int64_t head_dim, C scale, C* scores) {
  const VectorTag<C> tag;
  constexpr int64_t kWidth = hn::MaxLanes(VectorTag<C>()), kVectors = kKeyBlock / kWidth;
  for (int64_t j = 0; j < count; j += kKeyBlock, blocks += kKeyBlock * head_dim) {
    hn::Vec<VectorTag<C>> sums[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(tag);
    for (int64_t d = 0; d < head_dim; ++d) {
      const auto value = hn::Set(tag, q[d]);
      for (int64_t v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(value, hn::LoadU(tag, blocks + d * kKeyBlock + v * kWidth), sums[v]);
    }
    for (int64_t v = 0; v < kVectors; ++v)
      hn::StoreU(hn::Mul(sums[v], hn::Set(tag, scale)), tag, scores + j + v * kWidth);
  }
  for (int64_t j = count; j < padded_keys(count); ++j) scores[j] = -std::numeric_limits<C>::infinity();
}

/// out[d] = chain over j ascending of weights[j] * rows[j][d], from 0.
template <class C>
inline void weighted_sum(const C* weights, const C* rows, int64_t count, int64_t head_dim, C* out) {
  const VectorTag<C> tag;
  constexpr int64_t kWidth = hn::MaxLanes(VectorTag<C>()), kVectors = 4;
  int64_t first = 0;
  for (; first + kVectors * kWidth <= head_dim; first += kVectors * kWidth) {
    hn::Vec<VectorTag<C>> sums[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(tag);
    for (int64_t j = 0; j < count; ++j) {
      const auto weight = hn::Set(tag, weights[j]);
      for (int64_t v = 0; v < kVectors; ++v)
        sums[v] = hn::MulAdd(weight, hn::LoadU(tag, rows + j * head_dim + first + v * kWidth), sums[v]);
    }
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], tag, out + first + v * kWidth);
  }
  for (int64_t d = first; d < head_dim; ++d) out[d] = 0;
  for (int64_t j = 0; j < count; ++j)
    for (int64_t d = first; d < head_dim; ++d) out[d] = std::fma(weights[j], rows[j * head_dim + d], out[d]);
}

/// out = softmax(scores) V; returns the log of the sum of exp(scores). `weights` [padded_keys(count)] is scratch.
template <class C>
inline C attend(const C* q, const C* key_blocks, const C* values, int64_t count, int64_t head_dim, C scale, C* weights,
                C* out) {
  attention_scores(q, key_blocks, count, head_dim, scale, weights);
  const int64_t padded = padded_keys(count);
  const C largest = max_lanes(weights, padded);
  for (int64_t j = 0; j < padded; ++j) weights[j] = exponential(weights[j] - largest);
  const C sum = sum_lanes<C>(padded, [&](int64_t j) { return weights[j]; });
  weighted_sum(weights, values, count, head_dim, out);
  for (int64_t d = 0; d < head_dim; ++d) out[d] /= sum;
  return largest + logarithm(sum);
}

}  // namespace motley::kernels::cpu
