#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/sampling_inner.h"
#include "kernels/cpu/scratch.h"
#include "kernels/math.h"

namespace motley::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSorted = 128;  // so few are sorted instead of split
constexpr int64_t kMostSampled = 256;

[[noreturn]] void refuse(const float* z, int64_t vocabulary, float largest) {
  for (int64_t v = 0; v < vocabulary; ++v)
    if (std::isnan(z[v])) throw std::runtime_error("draw_token: logit " + std::to_string(v) + " is NaN");
  throw std::runtime_error(largest < 0 ? "draw_token: no logit is finite" : "draw_token: a logit is infinite");
}

/// Which elements of a row are kept: all above z, and the first `ties` of those equal to it.
struct Cut {
  float z;
  int64_t ties;
};
constexpr Cut kAllFinite{-kInfinity, 0};

/// Two values that the cut probably lies between.
struct Bracket {
  float low, high;
};

/// From a regular sample of the list. `below` is the weight that the cut leaves out: counted from the smallest, where
/// no element has much of it, a sample tells it well however peaked the row is.
Bracket bracket_of(const float* z, const float* e, int64_t count, double below) {
  const int64_t size = std::clamp<int64_t>(count / 4, 32, kMostSampled), margin = 2 + size / 25;
  std::pair<float, float> sample[kMostSampled];
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = i * count / size;
    sample[i] = {z[at], e == nullptr ? 1.0f : e[at]};
  }
  std::sort(sample, sample + size);
  const double each = static_cast<double>(count) / static_cast<double>(size);
  int64_t rank = 0;
  for (double left = below; rank < size; ++rank) {
    left -= each * static_cast<double>(sample[rank].second);
    if (left < 0) break;
  }
  return {rank - margin < 0 ? -kInfinity : sample[rank - margin].first,
          rank + margin >= size ? kInfinity : sample[rank + margin].first};
}

/// The smallest set, larger values first and ties in order, whose weight reaches `target`. Elements weigh e, or 1 each
/// when e is null; `weight` is that of the whole list. Sums are float64: what lies above the last bracket in the order
/// of `split`, then one by one.
Cut cut_at(const float* z, const float* e, int64_t count, double weight, double target) {
  float* values[] = {scratch<struct CutValues, float>(count + kSlack), scratch<struct CutMore, float>(count + kSlack)};
  float* weights[] = {scratch<struct CutWeights, float>(count + kSlack),
                      scratch<struct CutMoreWeights, float>(count + kSlack)};
  double above = 0;
  bool equal = false;
  // A sample can mislead, but not for ever: what three splits have not made short is sorted.
  for (int round = 0, misses = 0; count > kSorted && misses < 3 && !equal; ++round) {
    float *kept = values[round % 2], *kept_e = weights[round % 2];
    Bracket bracket = bracket_of(z, e, count, above + weight - target);
    Split parts = split(z, e, count, bracket.low, bracket.high, kept, kept_e);
    if (above + parts.above >= target) {
      weight = parts.above;
      bracket = {std::nextafter(bracket.high, kInfinity), kInfinity};
      parts = split(z, e, count, bracket.low, bracket.high, kept, kept_e);
    } else if (above + parts.above + parts.between < target) {
      above += parts.above + parts.between;
      weight -= parts.above + parts.between;
      bracket = {-kInfinity, std::nextafter(bracket.low, -kInfinity)};
      parts = split(z, e, count, bracket.low, bracket.high, kept, kept_e);
    } else {
      above += parts.above;
      weight = parts.between;
    }
    misses += parts.kept > count / 2;
    equal = bracket.low == bracket.high;
    z = kept, count = parts.kept;
    if (e != nullptr) e = kept_e;
  }
  auto* list = scratch<struct CutList, std::pair<float, float>>(count);
  for (int64_t i = 0; i < count; ++i) list[i] = {z[i], e == nullptr ? 1.0f : e[i]};
  if (!equal) std::sort(list, list + count, std::greater<>());
  Cut cut = kAllFinite;
  for (int64_t i = 0; i < count && above < target; ++i) {
    cut = {list[i].first, i > 0 && list[i].first == cut.z ? cut.ties + 1 : 1};
    above += static_cast<double>(list[i].second);
  }
  return cut;
}

/// Members of a candidate set, ascending: their places and weights.
struct Members {
  const int32_t* places;
  const float* e;
  int64_t count;
};

template <class Tag>
Members keep(const float* z, const float* e, int64_t count, const Cut& cut) {
  int32_t* places = scratch<Tag, int32_t>(count + kSlack);
  float* kept = scratch<Tag, float>(count + kSlack);
  const int64_t size = emit(z, e, count, cut.z, cut.z == -kInfinity ? 0 : cut.ties, places, kept);
  return {places, kept, size};
}

/// The elements that top-p keeps; their mass is counted from all of the list.
template <class Tag>
Members keep_mass(const float* z, const float* e, int64_t count, double top_p) {
  const double total = mass_of(e, count, scratch<struct MassSums, double>(mass_blocks(count)));
  return keep<Tag>(z, e, count, cut_at(z, e, count, total, top_p * total));
}

Cut cut_of_largest(const float* z, int64_t count, int64_t k) {
  return cut_at(z, nullptr, count, static_cast<double>(count), static_cast<double>(k));
}

/// The candidate set. Top-p counts the mass of what top-k leaves.
Members candidates_of(const float* z, const float* e, int64_t vocabulary, const SamplingRule& rule) {
  if (rule.top_k <= 0 || rule.top_k >= vocabulary) {
    return rule.top_p < 1.0 ? keep_mass<struct ByMass>(z, e, vocabulary, rule.top_p)
                            : keep<struct ByMass>(z, e, vocabulary, kAllFinite);
  }
  const Members most = keep<struct ByCount>(z, e, vocabulary, cut_of_largest(z, vocabulary, rule.top_k));
  if (rule.top_p >= 1.0) return most;
  float* values = scratch<struct MostValues, float>(most.count);
  for (int64_t i = 0; i < most.count; ++i) values[i] = z[most.places[i]];
  const Members some = keep_mass<struct ByMass>(values, most.e, most.count, rule.top_p);
  int32_t* places = scratch<struct BothPlaces, int32_t>(some.count);
  for (int64_t i = 0; i < some.count; ++i) places[i] = most.places[some.places[i]];
  return {places, some.e, some.count};
}

/// Place of the drawn element: the first at which the running sum of weights exceeds uniform * total. Sums are float64:
/// whole blocks, then one by one.
int64_t draw_place(const float* e, int64_t count, double uniform) {
  double* sums = scratch<struct DrawSums, double>(mass_blocks(count));
  const double target = uniform * mass_of(e, count, sums);
  double sum = 0, before = 0;
  int64_t block = 0;
  for (int64_t b = 0; b < mass_blocks(count) && sum <= target; ++b) {
    if (sums[b] == 0) continue;
    block = b;
    before = sum;
    sum += sums[b];
  }
  int64_t last = 0;
  const int64_t begin = block * kMassBlock, end = std::min(count, begin + kMassBlock);
  for (int64_t i = begin; i < end && before <= target; ++i) {
    if (e[i] == 0.0f) continue;
    before += static_cast<double>(e[i]);
    last = i;
  }
  return last;
}

}  // namespace

Draw draw_token(const float* logits, int64_t vocabulary, const SamplingRule& rule, double uniform,
                std::vector<float>& scaled) {
  scaled.resize(static_cast<size_t>(vocabulary));
  const bool greedy = rule.temperature == 0.0;
  const float divisor = greedy ? 1.0f : static_cast<float>(rule.temperature);
  const float largest = scale_row(logits, vocabulary, divisor, scaled.data());
  if (!std::isfinite(largest)) refuse(scaled.data(), vocabulary, largest);
  const float* z = scaled.data();
  float* e = scratch<struct DrawWeights, float>(vocabulary);
  float sum = exponentials(z, vocabulary, largest, e);
  Draw draw;
  if (greedy) {
    draw.id = static_cast<int32_t>(std::find(z, z + vocabulary, largest) - z);
  } else if (rule.top_p >= 1.0 && rule.top_k <= 0) {
    draw.id = static_cast<int32_t>(draw_place(e, vocabulary, uniform));
  } else {
    const Members members = candidates_of(z, e, vocabulary, rule);
    // The largest is a member, so the log-sum-exp over the members has the same shift.
    sum = sum_lanes<float>(members.count, [&](int64_t i) { return members.e[i]; });
    draw.id = members.places[draw_place(members.e, members.count, uniform)];
    draw.candidates.assign(members.places, members.places + members.count);
  }
  draw.log_q = z[draw.id] - (largest + logarithm(sum));
  return draw;
}

std::span<const int32_t> most_probable(const float* z, int64_t vocabulary, int64_t k) {
  int32_t* ids = scratch<struct MostProbable, int32_t>(vocabulary + kSlack);
  if (k >= vocabulary) {
    std::iota(ids, ids + vocabulary, 0);
    return {ids, static_cast<size_t>(vocabulary)};
  }
  const Cut cut = cut_of_largest(z, vocabulary, k);
  return {ids, static_cast<size_t>(emit(z, nullptr, vocabulary, cut.z, cut.ties, ids, nullptr))};
}

}  // namespace motley::kernels::cpu
