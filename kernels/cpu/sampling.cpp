#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/head_row.h"
#include "kernels/cpu/scratch.h"
#include "kernels/head.h"
#include "kernels/math.h"

namespace motley::kernels::cpu {
namespace {

/// Index of the first largest logit. Throws where the row is no distribution.
int32_t first_largest(const float* logits, int64_t vocabulary) {
  int32_t best = -1;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t v = 0; v < vocabulary; ++v) {
    if (std::isnan(logits[v])) throw std::runtime_error("draw_token: logit " + std::to_string(v) + " is NaN");
    if (logits[v] > largest) {
      largest = logits[v];
      best = static_cast<int32_t>(v);
    }
  }
  if (best < 0 || std::isinf(largest))
    throw std::runtime_error(best < 0 ? "draw_token: no logit is finite" : "draw_token: a logit is infinite");
  return best;
}

/// Shortens `ids`, in any order, to the most probable ones whose mass reaches top_p; `z` of the largest is known.
/// Only as many as needed are sorted.
void keep_mass(const float* z, float largest, double top_p, std::vector<int32_t>& ids) {
  const auto before = [z](int32_t a, int32_t b) { return z[a] != z[b] ? z[a] > z[b] : a < b; };
  double total = 0;
  for (const int32_t id : ids) total += exponential(z[id] - largest);
  double mass = 0;
  size_t sorted = 0;
  for (size_t size = 64; sorted < ids.size(); size *= 8) {
    const size_t next = std::min(size, ids.size());
    if (next < ids.size()) std::nth_element(ids.begin() + sorted, ids.begin() + next, ids.end(), before);
    std::sort(ids.begin() + sorted, ids.begin() + next, before);
    for (; sorted < next; ++sorted) {
      mass += exponential(z[ids[sorted]] - largest);
      if (mass >= top_p * total) return ids.resize(sorted + 1);
    }
  }
}

/// The candidate set, ascending.
std::vector<int32_t> candidates_of(const float* z, int64_t vocabulary, float largest, const SamplingRule& rule) {
  thread_local std::vector<int32_t> ids;
  ids.clear();
  for (int64_t v = 0; v < vocabulary; ++v)
    if (z[v] > -std::numeric_limits<float>::infinity()) ids.push_back(static_cast<int32_t>(v));
  if (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < ids.size()) {
    const auto before = [z](int32_t a, int32_t b) { return z[a] != z[b] ? z[a] > z[b] : a < b; };
    std::nth_element(ids.begin(), ids.begin() + rule.top_k, ids.end(), before);
    ids.resize(static_cast<size_t>(rule.top_k));
    std::sort(ids.begin(), ids.end());  // the mass is summed by ascending id
  }
  if (rule.top_p < 1.0) keep_mass(z, largest, rule.top_p, ids);
  std::sort(ids.begin(), ids.end());
  return {ids.begin(), ids.end()};
}

/// Place of the drawn member: the first at which the running sum of probabilities exceeds uniform * total.
int64_t draw_place(const float* values, int64_t count, float lse, double uniform) {
  float* p = scratch<struct DrawProbabilities, float>(count);
  for (int64_t i = 0; i < count; ++i) p[i] = exponential(values[i] - lse);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += p[i];
  const double target = uniform * total;
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (p[i] == 0.0f) continue;
    sum += p[i];
    last = i;
    if (sum > target) break;
  }
  return last;
}

}  // namespace

Draw draw_token(const float* logits, int64_t vocabulary, const SamplingRule& rule, double uniform,
                std::vector<float>& scaled) {
  scaled.resize(static_cast<size_t>(vocabulary));
  const bool greedy = rule.temperature == 0.0;
  divide_by_temperature(logits, vocabulary, greedy ? 1.0 : rule.temperature, scaled.data());
  const float* z = scaled.data();
  Draw draw;
  draw.id = first_largest(z, vocabulary);
  if (greedy) {
    draw.log_q = z[draw.id] - log_sum_exp(z, vocabulary);
    return draw;
  }
  if (rule.top_p >= 1.0 && rule.top_k <= 0) {
    const float lse = log_sum_exp(z, vocabulary);
    draw.id = static_cast<int32_t>(draw_place(z, vocabulary, lse, uniform));
    draw.log_q = z[draw.id] - lse;
    return draw;
  }
  draw.candidates = candidates_of(z, vocabulary, z[draw.id], rule);
  const int64_t count = static_cast<int64_t>(draw.candidates.size());
  float* values = scratch<struct DrawCandidates, float>(count);
  gather_logits(z, draw.candidates.data(), count, values);
  const float lse = log_sum_exp(values, count);
  const int64_t place = draw_place(values, count, lse, uniform);
  draw.id = draw.candidates[static_cast<size_t>(place)];
  draw.log_q = values[place] - lse;
  return draw;
}

}  // namespace motley::kernels::cpu
