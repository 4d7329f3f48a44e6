#include "kernels/head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/cpu/head_inner.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "kernels/math.h"
#include "kernels/matmul.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {

static double row_largest(const double* values, int64_t count) { return max_lanes(values, count); }
static double row_exp_sum(const double* values, int64_t count, double shift) {
  return sum_lanes<double>(count, [&](int64_t i) { return exponential(values[i] - shift); });
}
static double row_p_log_p(const double* values, int64_t count, double lse) {
  return sum_lanes<double>(count, [&](int64_t i) {
    const double log_p = values[i] - lse, p = exponential(log_p);
    return p == 0.0 ? 0.0 : p * log_p;
  });
}
template <class C>
static C row_log_sum_exp(const C* values, int64_t count) {
  const C largest = row_largest(values, count);
  // Without a finite maximum nothing is shifted: -inf and +inf come out as they are, NaN stays NaN.
  const C shift = std::isfinite(largest) ? largest : C{0};
  return shift + logarithm(row_exp_sum(values, count, shift));
}

template <class C>
void log_sum_exp(C* lse, const C* values, int64_t rows, int64_t cols) {
  parallel_for(rows, 1 + kPieceElements / (4 * cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) lse[r] = row_log_sum_exp(values + r * cols, cols);
  });
}
template void log_sum_exp<float>(float*, const float*, int64_t, int64_t);
template void log_sum_exp<double>(double*, const double*, int64_t, int64_t);

namespace {

/// Rows at a time: their logits are bounded (64 MiB of float for large vocabularies).
int64_t chunk_rows(int64_t vocabulary) {
  return std::clamp<int64_t>((int64_t{1} << 24) / std::max<int64_t>(vocabulary, 1), 32, 512);
}

/// The support of a row: z over the whole vocabulary, or gathered over its candidates.
template <class C>
struct Support {
  const int32_t* ids;  // null: the whole vocabulary
  int64_t count;
  C* values;

  int64_t place(int32_t id) const { return ids == nullptr ? id : std::lower_bound(ids, ids + count, id) - ids; }
};
template <class T>
Support<Compute<T>> support_of(const HeadArgs<T>& args, int64_t row, Compute<T>* z) {
  if (args.candidates.offsets == nullptr) return {nullptr, args.vocabulary, z};
  const int64_t begin = args.candidates.offsets[row], count = args.candidates.offsets[row + 1] - begin;
  Compute<T>* gathered = scratch<struct HeadCandidates, Compute<T>>(count);
  const int32_t* ids = args.candidates.ids + begin;
  for (int64_t i = 0; i < count; ++i) gathered[i] = z[ids[i]];
  return {ids, count, gathered};
}

/// Rows of kept logits at a time. Float logits of a small vocabulary come in chunks that stay in the second cache from
/// one pass to the next; elsewhere preparing the weight for so few rows would cost more than that gains.
template <class T>
int64_t kept_step(const HeadArgs<T>& args, int64_t kept) {
  constexpr int64_t kCached = int64_t{1} << 18, kFewest = 64, kLargestWidth = 512;
  const int64_t rows = kCached / std::max<int64_t>(args.vocabulary, 1);
  return std::is_same_v<T, float> && rows >= kFewest && args.width <= kLargestWidth ? std::min(rows, kept) : kept;
}

/// z of `rows` rows from `first` on. `packed` is the weight, if it was packed.
template <class T>
void logits_of(const HeadArgs<T>& args, const PackedMatrix* packed, int64_t first, int64_t rows, Compute<T>* logits) {
  using C = Compute<T>;
  const int64_t vocabulary = args.vocabulary;
  MatmulArgs product;
  product.a = row_major(static_cast<const void*>(args.hidden + first * args.width), dtype_of<T>(), rows, args.width);
  product.b = row_major(static_cast<const void*>(args.weight), dtype_of<T>(), vocabulary, args.width);
  product.packed = packed;
  product.c = row_major(static_cast<void*>(logits), dtype_of<C>(), rows, vocabulary);
  matmul(product);
}

/// Calls body(row, z of the row) for every row, chunk by chunk.
template <class T, class Body>
void for_each_row(const HeadArgs<T>& args, Body body) {
  using C = Compute<T>;
  const int64_t vocabulary = args.vocabulary, kept = std::min(args.kept_rows, args.rows);
  const int64_t step = std::min(chunk_rows(vocabulary), std::max<int64_t>(args.rows - kept, 1));
  const int64_t cached = kept_step(args, kept);
  std::optional<PackedMatrix> packed;
  if (cached < kept)
    packed = pack(row_major(static_cast<const void*>(args.weight), dtype_of<T>(), vocabulary, args.width));
  C* room = kept < args.rows ? scratch<struct HeadLogits, C>(step * vocabulary) : nullptr;
  const C divisor = static_cast<C>(args.temperature);
  for (int64_t first = 0, rows = 0; first < args.rows; first += rows) {
    const bool is_kept = first < kept;
    rows = is_kept ? std::min(cached, kept - first) : std::min(step, args.rows - first);
    C* logits = is_kept ? args.kept_logits + first * vocabulary : room;
    logits_of(args, packed ? &*packed : nullptr, first, rows, logits);
    parallel_for(rows, 1 + kPieceElements / (4 * vocabulary + 1), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        C* z = logits + r * vocabulary;
        if (divisor != C{1}) row_divide(z, vocabulary, divisor);
        body(first + r, z);
      }
    });
  }
}

}  // namespace

template <class T>
void head(const HeadArgs<T>& args) {
  using C = Compute<T>;
  const auto row = [&](int64_t r, C* z) {
    const Support<C> support = support_of(args, r, z);
    const C lse = row_log_sum_exp(support.values, support.count);
    const int64_t begin = args.selected.offsets == nullptr ? 0 : args.selected.offsets[r];
    const int64_t end = args.selected.offsets == nullptr ? 0 : args.selected.offsets[r + 1];
    for (int64_t k = begin; k < end; ++k) args.log_p[k] = z[args.selected.ids[k]] - lse;
    if (args.lse != nullptr) args.lse[r] = lse;
    if (args.entropy != nullptr) args.entropy[r] = -row_p_log_p(support.values, support.count, lse);
    if (args.log_outside == nullptr) return;
    C* selected = scratch<struct HeadSelected, C>(end - begin);
    for (int64_t k = begin; k < end; ++k) {
      C& value = support.values[support.place(args.selected.ids[k])];
      selected[k - begin] = std::exchange(value, -std::numeric_limits<C>::infinity());
    }
    args.log_outside[r] = row_log_sum_exp(support.values, support.count) - lse;
    for (int64_t k = begin; k < end; ++k) support.values[support.place(args.selected.ids[k])] = selected[k - begin];
  };
  for_each_row(args, row);
}

#define MOTLEY_INSTANTIATE(T) template void head<T>(const HeadArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
