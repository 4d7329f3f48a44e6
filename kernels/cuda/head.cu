// The head in row chunks as on the CPU: a product, then one block of threads per row of its logits.
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/product.h"
#include "kernels/head.h"
#include "kernels/math.h"
#include "kernels/pointwise.h"
#include "kernels/product_body.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

#ifdef __CUDACC__
constexpr DeviceKind kHere = DeviceKind::cuda;
#else
constexpr DeviceKind kHere = DeviceKind::emulated;
#endif

/// Of a row: four elements each, within a warp and eight.
int row_threads(int64_t vocabulary) {
  const int64_t wanted = pieces(vocabulary, 4 * kWarp) * kWarp;
  return wanted < kWarp ? kWarp : wanted > 8 * kWarp ? 8 * kWarp : static_cast<int>(wanted);
}

/// Rows at a time: their logits are bounded (64 MiB of float for large vocabularies).
int64_t chunk_rows(int64_t vocabulary) {
  const int64_t rows = (int64_t{1} << 24) / (vocabulary > 0 ? vocabulary : 1);
  return rows < 32 ? 32 : rows > 512 ? 512 : rows;
}

struct Range {
  int64_t begin, end;
};
GPU_DEVICE Range list_of(const IdLists& lists, int64_t row) {
  if (lists.offsets == nullptr) return {0, 0};
  return {lists.offsets[row], lists.offsets[row + 1]};
}

/// What a row's probabilities extend over: all logits, or those of its candidates.
template <class C>
struct Support {
  const C* z;
  const int32_t* ids;  // null: the whole vocabulary
  int64_t count;

  GPU_DEVICE C operator()(int64_t i) const { return ids == nullptr ? z[i] : z[ids[i]]; }
};
template <class T>
GPU_DEVICE Support<Compute<T>> support_of(const HeadArgs<T>& a, int64_t row, const Compute<T>* z) {
  if (a.candidates.offsets == nullptr) return {z, nullptr, a.vocabulary};
  const Range list = list_of(a.candidates, row);
  return {z, a.candidates.ids + list.begin, list.end - list.begin};
}
GPU_DEVICE bool contains(const int32_t* ids, int64_t count, int64_t id) {
  int64_t begin = 0, end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (ids[middle] < id)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin < count && ids[begin] == id;
}

/// The order of a maximum shows in the sign of zero alone, which no sum here sees.
template <class C>
GPU_DEVICE C row_log_sum_exp(const Support<C>& values, C* tile) {
  GPU_SHARED(C, part, kMaxWarps);
  C largest = -static_cast<C>(INFINITY);
  for (int64_t i = thread(); i < values.count; i += threads()) largest = values(i) > largest ? values(i) : largest;
  largest = block_max(largest, part);
  const C shift = std::isfinite(largest) ? largest : C{0};
  return shift + logarithm(sum_lanes(
                     values.count, [&](int64_t i) { return exponential(values(i) - shift); }, tile));
}

template <class C>
GPU_KERNEL void log_sum_exp_kernel(C* lse, const C* values, int64_t cols) {
  GPU_SHARED(C, tile, kTile);
  const C sum = row_log_sum_exp(Support<C>{values + block() * cols, nullptr, cols}, tile);
  if (thread() == 0) lse[block()] = sum;
}

template <class C>
GPU_DEVICE C entropy_of(const Support<C>& values, C lse, C* tile) {
  return -sum_lanes(
      values.count,
      [&](int64_t i) {
        const C log_p = values(i) - lse, p = exponential(log_p);
        return p == C{0} ? C{0} : p * log_p;
      },
      tile);
}

/// Row first + block() of the batch; its logits are row block() of `logits`.
template <class T>
GPU_KERNEL void head_row_kernel(HeadArgs<T> a, Compute<T>* logits, int64_t first) {
  using C = Compute<T>;
  GPU_SHARED(C, tile, kTile);
  const int64_t row = first + block();
  C* z = logits + block() * a.vocabulary;
  const Support<C> support = support_of(a, row, z);
  const Range selected = list_of(a.selected, row);
  const C lse = row_log_sum_exp(support, tile);
  for (int64_t k = selected.begin + thread(); k < selected.end; k += threads()) a.log_p[k] = z[a.selected.ids[k]] - lse;
  if (thread() == 0 && a.lse != nullptr) a.lse[row] = lse;
  if (a.entropy != nullptr) {
    const C entropy = entropy_of(support, lse, tile);
    if (thread() == 0) a.entropy[row] = entropy;
  }
  if (a.log_outside == nullptr) return;
  barrier();
  for (int64_t k = selected.begin + thread(); k < selected.end; k += threads())
    z[a.selected.ids[k]] = -static_cast<C>(INFINITY);
  barrier();
  const C outside = row_log_sum_exp(support, tile) - lse;
  if (thread() == 0) a.log_outside[row] = outside;
}

/// The logits of a row become dL/dlogits, the factor 1 / temperature included.
template <class T>
GPU_KERNEL void head_slopes_kernel(HeadBackwardArgs<T> a, Compute<T>* logits, int64_t first) {
  using C = Compute<T>;
  const HeadArgs<T>& forward = a.forward;
  const int64_t row = first + block(), vocabulary = forward.vocabulary;
  C* z = logits + block() * vocabulary;
  const Range selected = list_of(forward.selected, row);
  const C c = a.d_entropy == nullptr ? C{0} : a.d_entropy[row];
  C sum{0};
  bool any = c != C{0};
  for (int64_t k = selected.begin; k < selected.end; ++k) {
    sum -= a.d_log_p[k];
    any = any || a.d_log_p[k] != C{0};
  }
  const Support<C> support = support_of(forward, row, z);
  const C lse = forward.lse[row], entropy = c == C{0} ? C{0} : forward.entropy[row];
  for (int64_t v = thread(); v < vocabulary; v += threads()) {
    const bool inside = any && (support.ids == nullptr || contains(support.ids, support.count, v));
    const C log_p = z[v] - lse, p = exponential(log_p);
    const C spread = c == C{0} ? sum * p : p == C{0} ? C{0} : p * (sum - c * (log_p + entropy));
    z[v] = inside ? spread : C{0};
  }
  if (!any) return;
  barrier();
  for (int64_t k = selected.begin + thread(); k < selected.end; k += threads())
    z[forward.selected.ids[k]] += a.d_log_p[k];
  barrier();
  const C temperature = static_cast<C>(forward.temperature);
  for (int64_t v = thread(); v < vocabulary; v += threads()) z[v] = z[v] / temperature;
}

template <class T>
void multiply(const HeadArgs<T>& head, const char* name, const MatmulArgs& job, double divisor = 1) {
  if (!head.vendor || std::is_same_v<T, double>) return product(name, {job, divisor});
  MatmulArgs scaled = job;
  scaled.alpha = static_cast<float>(1 / divisor);
  compute_here(ProductBody::vendor, kHere, scaled);
}

/// Calls body(first row, rows, their logits) chunk by chunk.
template <class T, class Body>
void for_each_chunk(const HeadArgs<T>& args, Body body) {
  using C = Compute<T>;
  const int64_t chunk = chunk_rows(args.vocabulary), step = chunk < args.rows ? chunk : args.rows;
  const Scratch<C> logits(step * args.vocabulary);
  for (int64_t first = 0; first < args.rows; first += step) {
    const int64_t rows = args.rows - first < step ? args.rows - first : step;
    MatmulArgs job;
    job.a = row_major(args.hidden + first * args.width, dtype_of<T>(), rows, args.width);
    job.b = row_major(args.weight, dtype_of<T>(), args.vocabulary, args.width);
    job.c = row_major(logits.data(), dtype_of<C>(), rows, args.vocabulary);
    multiply(args, "head_logits", job, args.temperature);
    body(first, rows, logits.data());
  }
}

}  // namespace

template <class C>
void log_sum_exp(C* lse, const C* values, int64_t rows, int64_t cols) {
  launch({"log_sum_exp", rows, row_threads(cols)}, log_sum_exp_kernel<C>, lse, values, cols);
}
template void log_sum_exp<float>(float*, const float*, int64_t, int64_t);
template void log_sum_exp<double>(double*, const double*, int64_t, int64_t);

template <class T>
void head(const HeadArgs<T>& args) {
  for_each_chunk(args, [&](int64_t first, int64_t rows, Compute<T>* logits) {
    launch({"head_row", rows, row_threads(args.vocabulary)}, head_row_kernel<T>, args, logits, first);
  });
}

template <class T>
void head_backward(const HeadBackwardArgs<T>& args) {
  using C = Compute<T>;
  const HeadArgs<T>& forward = args.forward;
  const int64_t width = forward.width, vocabulary = forward.vocabulary;
  for_each_chunk(forward, [&](int64_t first, int64_t rows, C* slopes) {
    launch({"head_slopes", rows, row_threads(vocabulary)}, head_slopes_kernel<T>, args, slopes, first);
    const bool rounds = forward.vendor && !std::is_same_v<T, C>;
    const Scratch<T> rounded(rounds ? rows * vocabulary : 0);
    if (rounds) convert(rounded.data(), dtype_of<T>(), slopes, dtype_of<C>(), rows * vocabulary);
    MatmulArgs job;
    job.a = rounds ? row_major(static_cast<const T*>(rounded.data()), dtype_of<T>(), rows, vocabulary)
                   : row_major(static_cast<const C*>(slopes), dtype_of<C>(), rows, vocabulary);
    job.b = transposed(row_major(forward.weight, dtype_of<T>(), vocabulary, width));
    job.c = row_major(args.d_hidden + first * width, dtype_of<T>(), rows, width);
    multiply(forward, "head_d_hidden", job);
    job.a = transposed(job.a);
    job.b = transposed(row_major(forward.hidden + first * width, dtype_of<T>(), rows, width));
    job.c = row_major(args.d_weight, dtype_of<C>(), vocabulary, width);
    job.accumulate = true;
    multiply(forward, "head_d_weight", job);
  });
}

#define MOTLEY_INSTANTIATE(T)                \
  template void head<T>(const HeadArgs<T>&); \
  template void head_backward<T>(const HeadBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
