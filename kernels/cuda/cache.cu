#include "kernels/attention.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/kv_format.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 128;

/// A row per block.
template <Format F, class T>
GPU_KERNEL void cache_write_kernel(CacheWriteArgs<T> a) {
  const int64_t row = block(), numbers = a.kv_heads * a.head_dim, position = a.positions[row];
  const int64_t place = a.page_table[row][position / a.page_size] * a.page_size + position % a.page_size;
  const auto scale = static_cast<Compute<T>>(a.kv_scale);
  auto* const out = static_cast<typename KvCode<F>::type*>(a.cache) + place * numbers;
  for (int64_t i = thread(); i < numbers; i += threads()) out[i] = encode_kv<F>(a.rows_in[row * numbers + i], scale);
}

}  // namespace

template <class T>
void cache_write(const CacheWriteArgs<T>& args) {
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    launch({"cache_write", args.rows, kThreads}, cache_write_kernel<F, T>, args);
  });
}

#define MOTLEY_INSTANTIATE(T) template void cache_write<T>(const CacheWriteArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
