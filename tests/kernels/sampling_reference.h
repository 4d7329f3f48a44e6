// Draws by full sorting and plain loops: what the draws of every device are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/head.h"
#include "kernels/math.h"
#include "kernels/sampling.h"
#include "kernels/sampling_mass.h"
#include "tests/kernels/values.h"

namespace motley::kernels {

/// Where `ids` are those that may be drawn, ascending, z their row.
inline std::vector<int32_t> naive_most_probable(const std::vector<float>& z, std::vector<int32_t> ids, size_t k) {
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return z[a] > z[b]; });
  ids.resize(std::min(k, ids.size()));
  return ids;
}

/// The candidate set by full sorting.
inline std::vector<int32_t> naive_candidates(const std::vector<float>& logits, const SamplingRule& rule) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> z;
  for (const float x : logits) z.push_back(x / static_cast<float>(rule.temperature));
  std::vector<int32_t> ids(z.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (rule.top_p < 1.0 || rule.top_k > 0) std::erase_if(ids, [&](int32_t id) { return z[id] == -kInfinity; });
  ids = naive_most_probable(z, ids, rule.top_k > 0 ? static_cast<size_t>(rule.top_k) : ids.size());
  if (rule.top_p < 1.0) {
    const auto mass = [&](int32_t id) { return mass_of(exponential(z[id] - z[ids[0]])); };
    int64_t total = 0, sum = 0;
    for (const int32_t id : ids) total += mass(id);
    size_t keep = 0;
    while (sum < mass_to_reach(rule.top_p, total)) sum += mass(ids[keep++]);
    ids.resize(keep);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// The draw in ascending order, without blocks, lanes or lists.
inline Draw naive_draw(const std::vector<float>& logits, const SamplingRule& rule, double uniform) {
  Draw draw;
  std::vector<float> z, values;
  for (const float x : logits) z.push_back(x / static_cast<float>(rule.temperature));
  const std::vector<int32_t> ids = naive_candidates(logits, rule);
  if (rule.top_p < 1.0 || rule.top_k > 0) draw.candidates = ids;
  for (const int32_t id : ids) values.push_back(z[static_cast<size_t>(id)]);
  float lse = 0;
  cpu::log_sum_exp(&lse, values.data(), 1, static_cast<int64_t>(values.size()));
  const float largest = *std::max_element(values.begin(), values.end());
  int64_t total = 0, sum = 0;
  for (const float value : values) total += mass_of(exponential(value - largest));
  const int64_t target = mass_to_exceed(uniform, total);
  for (size_t i = 0; sum <= target; ++i) {
    sum += mass_of(exponential(values[i] - largest));
    draw.id = ids[i];
    draw.log_q = values[i] - lse;
  }
  return draw;
}

/// Rows of many shapes: uniform, peaked (a power law in shuffled places), two far levels, equal, huge steps, holes.
inline constexpr int kRowKinds = 6;
inline std::vector<float> row_of_kind(int kind, int64_t vocabulary, uint64_t seed) {
  auto row = values<float>(vocabulary, seed, kind == 0 ? 3.0 : 0.1);
  for (int64_t v = 0; v < vocabulary; ++v) {
    float& x = row[static_cast<size_t>(v)];
    if (kind == 1) x -= 2.2f * std::log(1.0f + static_cast<float>(v * 7919 % vocabulary));
    if (kind == 2) x += v % 1000 == 7 ? 30.0f : 0.0f;
    if (kind == 3) x = 1.5f;
    if (kind == 4) x = std::ldexp(x, static_cast<int>(v % 60) - 30);
    if (kind == 5 && v % 3 != 0) x = -std::numeric_limits<float>::infinity();
  }
  return row;
}

}  // namespace motley::kernels
