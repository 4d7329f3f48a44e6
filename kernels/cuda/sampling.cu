// A row per block. Masses are integers, so that sums over the threads need no order; the one float sum, of log_q, goes
// by the lanes of kernels/cuda/lanes.h.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/lanes.h"
#include "kernels/math.h"
#include "kernels/sampling.h"
#include "kernels/sampling_mass.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 512;
constexpr int kEach = 4;  // neighbouring elements of a thread, where order counts
constexpr int64_t kStep = int64_t{kThreads} * kEach;
constexpr int kPivots = 15;

/// Ordered as the numbers are; both zeros are one. No NaN.
GPU_DEVICE uint32_t key_of(float z) {
  const uint32_t bits = std::bit_cast<uint32_t>(z + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
GPU_DEVICE float value_of(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/// Sums of the block's values: of the threads before this one, and of all.
template <class V>
struct Sums {
  V before, all;
};
/// `part` holds kMaxWarps values of the block.
template <class V>
GPU_DEVICE Sums<V> add_up(V value, V* part) {
  const int lane = thread() % kWarp, warp = thread() / kWarp;
  V before{0}, all = value;
  for (int mask = 1; mask < kWarp; mask *= 2) {
    const V other = shuffle_xor(all, mask);
    if ((lane & mask) != 0) before += other;
    all += other;
  }
  barrier();
  if (lane == 0) part[warp] = all;
  barrier();
  all = V{0};
  for (int w = 0; w < threads() / kWarp; ++w) {
    if (w == warp) before += all;
    all += part[w];
  }
  return {before, all};
}

/// Which elements of a row are kept: all whose key is larger, and the first `ties` of those that have it.
struct Cut {
  uint32_t key;
  int64_t ties;
};

/// The smallest set, larger values first and ties in order, whose weight(z) reaches `target`, which is from 1 to the
/// weight of all. Each pass cuts the range of keys that may hold the cut into sixteen.
template <class Weight>
GPU_DEVICE Cut cut_at(const float* z, int64_t count, Weight weight, int64_t target, int64_t* part) {
  uint32_t low = key_of(-INFINITY), high = key_of(INFINITY);
  int64_t above = 0;  // the weight of keys beyond `high`
  while (low < high) {
    const uint64_t span = static_cast<uint64_t>(high - low) + 1;
    uint32_t pivots[kPivots];
    int64_t sums[kPivots];  // of keys from the pivot to `high`
    GPU_UNROLL
    for (int j = 0; j < kPivots; ++j) {
      pivots[j] = low + static_cast<uint32_t>(span * static_cast<uint64_t>(j + 1) / (kPivots + 1));
      sums[j] = 0;
    }
    for (int64_t i = thread(); i < count; i += threads()) {
      const uint32_t key = key_of(z[i]);
      if (key < low || key > high) continue;
      const int64_t mine = weight(z[i]);
      GPU_UNROLL
      for (int j = 0; j < kPivots; ++j) sums[j] += key >= pivots[j] ? mine : 0;
    }
    bool found = false;
    GPU_UNROLL
    for (int j = 0; j < kPivots && !found; ++j) {
      const int64_t sum = add_up(sums[j], part).all;
      found = above + sum < target;
      if (found) {
        high = pivots[j] - 1;
        above += sum;
      } else {
        low = pivots[j];
      }
    }
  }
  const int64_t each = weight(value_of(low));
  return {low, (target - above + each - 1) / each};
}

/// Writes the places of what a cut keeps, ascending; returns how many there are.
GPU_DEVICE int64_t emit(const float* z, int64_t count, const Cut& cut, int32_t* places, int64_t* part) {
  int64_t kept = 0, equal = 0;
  for (int64_t base = 0; base < count; base += kStep) {
    const int64_t first = base + thread() * kEach;
    int64_t mine = 0;  // above the cut, and at it in the high half
    for (int64_t i = first; i < first + kEach && i < count; ++i) {
      const uint32_t key = key_of(z[i]);
      mine += key > cut.key ? 1 : key == cut.key ? int64_t{1} << 32 : 0;
    }
    const Sums<int64_t> sums = add_up(mine, part);
    int64_t ties = equal + (sums.before >> 32);
    int64_t place =
        kept + (sums.before & 0xffffffff) + (ties < cut.ties ? ties : cut.ties) - (equal < cut.ties ? equal : cut.ties);
    for (int64_t i = first; i < first + kEach && i < count; ++i) {
      const uint32_t key = key_of(z[i]);
      const bool keep = key > cut.key || (key == cut.key && ties++ < cut.ties);
      if (keep) places[place++] = static_cast<int32_t>(i);
    }
    const int64_t now = equal + (sums.all >> 32);
    kept += (sums.all & 0xffffffff) + (now < cut.ties ? now : cut.ties) - (equal < cut.ties ? equal : cut.ties);
    equal = now;
  }
  return kept;
}

/// The first place at which the running sum of weight(i) exceeds `target`, which is below the sum of all.
template <class Weight>
GPU_DEVICE int64_t place_beyond(int64_t count, Weight weight, int64_t target, int64_t* part) {
  GPU_SHARED(int64_t, place, 1);
  int64_t passed = 0;
  for (int64_t base = 0; base < count; base += kStep) {
    const int64_t first = base + thread() * kEach;
    int64_t mine = 0;
    for (int64_t i = first; i < first + kEach && i < count; ++i) mine += weight(i);
    const Sums<int64_t> sums = add_up(mine, part);
    if (passed + sums.all <= target) {
      passed += sums.all;
      continue;
    }
    int64_t sum = passed + sums.before;
    if (sum <= target && sum + mine > target) {
      int64_t i = first;
      while ((sum += weight(i)) <= target) ++i;
      *place = i;
    }
    break;
  }
  barrier();
  return *place;
}

/// The largest z, or NaN where z has a NaN.
GPU_DEVICE float largest_of(float mine, bool nan, float* most, int64_t* part) {
  const int64_t nans = add_up(int64_t{nan ? 1 : 0}, part).all;
  const float largest = block_max(mine, most);
  return nans > 0 ? NAN : largest;
}
GPU_DEVICE int64_t first_place_of(float value, const float* z, int64_t count, int64_t* part) {
  int64_t place = count;
  for (int64_t i = count - 1 - thread(); i >= 0; i -= threads())
    if (z[i] == value) place = i;
  return -block_max(-place, part);
}

/// What a row keeps by top-k and top-p. Top-p counts the mass of what top-k leaves.
template <class Mass>
GPU_DEVICE Cut cut_of(const float* z, int64_t count, const SamplingRule& rule, Mass mass, int64_t* part) {
  Cut cut{key_of(-INFINITY), 0};  // all that are finite
  if (rule.top_k > 0 && rule.top_k < count) {
    const Cut most = cut_at(
        z, count, [](float) { return int64_t{1}; }, rule.top_k, part);
    if (most.key > cut.key) cut = most;
  }
  if (rule.top_p >= 1.0) return cut;
  int64_t mine = 0;
  for (int64_t i = thread(); i < count; i += threads()) mine += key_of(z[i]) > cut.key ? mass(z[i]) : 0;
  const int64_t ties = cut.ties > 0 ? cut.ties * mass(value_of(cut.key)) : 0;
  return cut_at(z, count, mass, mass_to_reach(rule.top_p, add_up(mine, part).all + ties), part);
}

GPU_KERNEL void draw_token_kernel(DrawTokenArgs a) {
  GPU_SHARED(float, tile, kTile);
  GPU_SHARED(float, most, kMaxWarps);
  GPU_SHARED(int64_t, part, kMaxWarps);
  const int64_t row = block(), vocabulary = a.vocabulary;
  const DrawRequest& request = a.requests[row];
  const SamplingRule& rule = request.rule;
  const float* logits = a.logits + row * vocabulary;
  float* z = a.scaled + row * vocabulary;
  const bool greedy = rule.temperature == 0.0;
  const float divisor = greedy ? 1.0f : static_cast<float>(rule.temperature);
  float largest = -INFINITY;
  bool nan = false;
  for (int64_t i = thread(); i < vocabulary; i += threads()) {
    const float value = logits[i] / divisor;
    z[i] = value;
    nan = nan || value != value;
    largest = value > largest ? value : largest;
  }
  largest = largest_of(largest, nan, most, part);
  if (!std::isfinite(largest) || vocabulary > kMostSampledIds) {
    if (thread() != 0) return;
    a.ids[row] = kNotDrawn;
    a.log_q[row] = NAN;
    a.candidate_counts[row] = 0;
    return;
  }
  const auto mass = [&](float value) { return mass_of(exponential(value - largest)); };
  const int32_t* ids = nullptr;  // null: the whole vocabulary
  int64_t count = vocabulary;
  if (!greedy && (rule.top_p < 1.0 || rule.top_k > 0)) {
    int32_t* const candidates = a.candidates + row * vocabulary;
    count = emit(z, vocabulary, cut_of(z, vocabulary, rule, mass, part), candidates, part);
    ids = candidates;
  }
  const auto value_at = [&](int64_t i) { return ids == nullptr ? z[i] : z[ids[i]]; };
  int64_t mine = 0;
  const float sum = sum_lanes(
      count,
      [&](int64_t i) {
        const float e = exponential(value_at(i) - largest);
        mine += mass_of(e);
        return e;
      },
      tile);
  int64_t place;
  if (greedy) {
    place = first_place_of(largest, z, vocabulary, part);
  } else {
    const double uniform = random_uniform(request.key, request.position);
    const int64_t target = mass_to_exceed(uniform, add_up(mine, part).all);
    place = place_beyond(
        count, [&](int64_t i) { return mass(value_at(i)); }, target, part);
  }
  if (thread() != 0) return;
  const int32_t id = ids == nullptr ? static_cast<int32_t>(place) : ids[place];
  a.ids[row] = id;
  a.log_q[row] = z[id] - (largest + logarithm(sum));
  a.candidate_counts[row] = ids == nullptr ? 0 : static_cast<int32_t>(count);
}

GPU_KERNEL void most_probable_kernel(MostProbableArgs a) {
  GPU_SHARED(int64_t, part, kMaxWarps);
  const float* z = a.z + block() * a.vocabulary;
  int32_t* ids = a.ids + block() * (a.k < a.vocabulary ? a.k : a.vocabulary);
  if (a.k >= a.vocabulary) {
    for (int64_t i = thread(); i < a.vocabulary; i += threads()) ids[i] = static_cast<int32_t>(i);
    return;
  }
  emit(z, a.vocabulary,
       cut_at(
           z, a.vocabulary, [](float) { return int64_t{1}; }, a.k, part),
       ids, part);
}

}  // namespace

void draw_token(const DrawTokenArgs& args) { launch({"draw_token", args.rows, kThreads}, draw_token_kernel, args); }
void most_probable(const MostProbableArgs& args) {
  launch({"most_probable", args.rows, kThreads}, most_probable_kernel, args);
}

}  // namespace motley::kernels::GPU_NAMESPACE
