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
#include "kernels/parallel.h"
#include "kernels/sampling_mass.h"

namespace motley::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSorted = 128;  // so few are sorted instead of split
constexpr int64_t kMostSampled = 256;

[[noreturn]] void refuse(const float* z, int64_t vocabulary, float largest) {
  if (vocabulary > kMostSampledIds)
    throw std::runtime_error("draw_token: a vocabulary of " + std::to_string(vocabulary) + " ids; at most " +
                             std::to_string(kMostSampledIds) + " can be drawn from");
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

/// What an element counts for: its mass, or 1 when all count the same.
int64_t weight_of(const float* e, int64_t i) { return e == nullptr ? 1 : mass_of(e[i]); }

/// From a regular sample of the list. `below` is the weight that the cut leaves out: counted from the smallest, where
/// no element has much of it, a sample tells it well however peaked the row is.
Bracket bracket_of(const float* z, const float* e, int64_t count, int64_t below) {
  const int64_t size = std::clamp<int64_t>(count / 4, 32, kMostSampled), margin = 2 + size / 25;
  std::pair<float, int64_t> sample[kMostSampled];
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = i * count / size;
    sample[i] = {z[at], weight_of(e, at)};
  }
  std::sort(sample, sample + size);
  const double each = static_cast<double>(count) / static_cast<double>(size);
  int64_t rank = 0;
  for (auto left = static_cast<double>(below); rank < size; ++rank) {
    left -= each * static_cast<double>(sample[rank].second);
    if (left < 0) break;
  }
  return {rank - margin < 0 ? -kInfinity : sample[rank - margin].first,
          rank + margin >= size ? kInfinity : sample[rank + margin].first};
}

/// The smallest set, larger values first and ties in order, whose weight reaches `target`. Elements weigh the mass of
/// e, or 1 each when e is null; `weight` is that of the whole list, and not below the target.
Cut cut_at(const float* z, const float* e, int64_t count, int64_t weight, int64_t target) {
  float* values[] = {scratch<struct CutValues, float>(count + kSlack), scratch<struct CutMore, float>(count + kSlack)};
  float* weights[] = {scratch<struct CutWeights, float>(count + kSlack),
                      scratch<struct CutMoreWeights, float>(count + kSlack)};
  int64_t above = 0;
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
  auto* list = scratch<struct CutList, std::pair<float, int64_t>>(count);
  for (int64_t i = 0; i < count; ++i) list[i] = {z[i], weight_of(e, i)};
  if (!equal) std::sort(list, list + count, std::greater<>());
  Cut cut = kAllFinite;
  for (int64_t i = 0; i < count && above < target; ++i) {
    cut = {list[i].first, i > 0 && list[i].first == cut.z ? cut.ties + 1 : 1};
    above += list[i].second;
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
  const int64_t total = masses_of(e, count, scratch<struct MassSums, int64_t>(mass_blocks(count)));
  return keep<Tag>(z, e, count, cut_at(z, e, count, total, mass_to_reach(top_p, total)));
}

Cut cut_of_largest(const float* z, int64_t count, int64_t k) { return cut_at(z, nullptr, count, count, k); }

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

/// Place of the drawn element: the first at which the running sum of masses exceeds its share of the total.
int64_t draw_place(const float* e, int64_t count, double uniform) {
  int64_t* sums = scratch<struct DrawSums, int64_t>(mass_blocks(count));
  int64_t left = mass_to_exceed(uniform, masses_of(e, count, sums));
  int64_t block = 0;
  while (left >= sums[block]) left -= sums[block++];
  int64_t place = block * kMassBlock;
  while (left >= mass_of(e[place])) left -= mass_of(e[place++]);
  return place;
}

/// What a row gives, or nothing where its logits give no distribution. z [vocabulary] becomes logits / temperature,
/// and `largest` the largest of them.
bool draw_row(const float* logits, int64_t vocabulary, const SamplingRule& rule, double uniform, float* z,
              float& largest, Draw& draw) {
  const bool greedy = rule.temperature == 0.0;
  const float divisor = greedy ? 1.0f : static_cast<float>(rule.temperature);
  largest = scale_row(logits, vocabulary, divisor, z);
  if (!std::isfinite(largest) || vocabulary > kMostSampledIds) return false;
  float* e = scratch<struct DrawWeights, float>(vocabulary);
  float sum = exponentials(z, vocabulary, largest, e);
  draw.candidates.clear();
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
  return true;
}

}  // namespace

Draw draw_token(const float* logits, int64_t vocabulary, const SamplingRule& rule, double uniform,
                std::vector<float>& scaled) {
  scaled.resize(static_cast<size_t>(vocabulary));
  Draw draw;
  float largest = 0;
  if (!draw_row(logits, vocabulary, rule, uniform, scaled.data(), largest, draw))
    refuse(scaled.data(), vocabulary, largest);
  return draw;
}

void draw_token(const DrawTokenArgs& args) {
  parallel_for(args.rows, 1, [&](int64_t begin, int64_t end) {
    Draw draw;
    for (int64_t r = begin; r < end; ++r) {
      const DrawRequest& request = args.requests[r];
      const int64_t at = r * args.vocabulary;
      float largest = 0;
      const bool drawn = draw_row(args.logits + at, args.vocabulary, request.rule,
                                  random_uniform(request.key, request.position), args.scaled + at, largest, draw);
      args.ids[r] = drawn ? draw.id : kNotDrawn;
      args.log_q[r] = drawn ? draw.log_q : std::numeric_limits<float>::quiet_NaN();
      args.candidate_counts[r] = drawn ? static_cast<int32_t>(draw.candidates.size()) : 0;
      if (drawn) std::copy(draw.candidates.begin(), draw.candidates.end(), args.candidates + at);
    }
  });
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

void most_probable(const MostProbableArgs& args) {
  const int64_t size = std::min(args.k, args.vocabulary);
  parallel_for(args.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const std::span<const int32_t> ids = most_probable(args.z + r * args.vocabulary, args.vocabulary, args.k);
      std::copy(ids.begin(), ids.end(), args.ids + r * size);
    }
  });
}

}  // namespace motley::kernels::cpu
