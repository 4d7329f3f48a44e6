// Stands for the CUDA bodies in a build without them, so that callers link and are told.
#include <stdexcept>

#include "kernels/arrays.h"
#include "kernels/attention.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/device_memory.h"
#include "kernels/finish.h"
#include "kernels/head.h"
#include "kernels/hopper_fp8.h"
#include "kernels/matmul.h"
#include "kernels/matmul_grouped.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/quantize_device.h"
#include "kernels/sampling.h"
#include "kernels/vendor.h"
#include "kernels/vendor_scales.h"

namespace motley::kernels::cuda {
namespace {
[[noreturn]] void absent() {
  throw std::runtime_error("built without CUDA: this binary has no device cuda:N (configure with -DMOTLEY_CUDA=ON)");
}
}  // namespace

bool built() { return false; }
int device_count() { return 0; }
void use_device(int) { absent(); }
int compute_capability() { absent(); }
std::string warpgroup_refusal() { absent(); }
void* allocate(size_t) { absent(); }
void release(void*) noexcept {}
void copy_in(void*, const void*, size_t) { absent(); }
void copy_out(void*, const void*, size_t) { absent(); }
void copy(void*, const void*, size_t) { absent(); }
void clear(void*, size_t) { absent(); }
MemoryUse memory_use() { absent(); }
void trim() { absent(); }
void* allocate_pinned(size_t) { absent(); }
void release_pinned(void*) noexcept {}
void copy_in_async(void*, const void*, size_t) { absent(); }
void copy_out_async(void*, const void*, size_t) { absent(); }
void copy_from_peer(void*, const void*, int, size_t) { absent(); }
void* create_stream() { absent(); }
void destroy_stream(void*) noexcept {}
void use_stream(void*) { absent(); }
void* stream_in_use() { absent(); }
void* create_event() { absent(); }
void destroy_event(void*) noexcept {}
void record(void*) { absent(); }
void await(void*) { absent(); }
void finish_event(void*) { absent(); }
void finish_stream() { absent(); }
void synchronize() { absent(); }
void begin_capture() { absent(); }
void* end_capture() { absent(); }
void cancel_capture() noexcept {}
void launch_graph(void*) { absent(); }
void destroy_graph(void*) noexcept {}
void* allocate_at_once(size_t) { absent(); }

void matmul(const MatmulArgs&) { absent(); }
void finish_sums(const MatmulArgs&, const float*) { absent(); }
void place_row_scales(float*, const float*, int64_t, int64_t) { absent(); }
void matmul_units(const MatmulArgs&, UnitTiling) { absent(); }
void hopper_fp8_product(const MatmulArgs&) { absent(); }
std::string cublaslt_library() { return "no cuBLASLt (not in this build)"; }
bool vendor_matmul(const MatmulArgs&) { return false; }
void matmul_grouped(const GroupedMatmulArgs&) { absent(); }
void matmul_grouped_units(const GroupedMatmulArgs&, UnitTiling) { absent(); }
bool vendor_matmul_codes(VendorProduct, const VendorCodes&, const VendorCodes&, const MatmulArgs&) { return false; }
void quantize(const QuantizeArgs&) { absent(); }
void quantize_activations(const QuantizeActivationsArgs&) { absent(); }
void convert(void*, DType, const void*, DType, int64_t) { absent(); }
void draw_token(const DrawTokenArgs&) { absent(); }
void most_probable(const MostProbableArgs&) { absent(); }

#define MOTLEY_ABSENT(declaration) \
  template <>                      \
  void declaration {               \
    absent();                      \
  }
#define MOTLEY_ABSENT_OF_COMPUTE(T)            \
  MOTLEY_ABSENT(adamw<T>(const AdamWArgs<T>&)) \
  MOTLEY_ABSENT(log_sum_exp<T>(T*, const T*, int64_t, int64_t))
#define MOTLEY_ABSENT_OF_TYPE(T)                                        \
  MOTLEY_ABSENT(add<T>(T*, const T*, const T*, int64_t))                \
  MOTLEY_ABSENT(add_rows<T>(const AddRowsArgs<T>&))                     \
  MOTLEY_ABSENT(attention<T>(const AttentionArgs<T>&))                  \
  MOTLEY_ABSENT(attention_backward<T>(const AttentionBackwardArgs<T>&)) \
  MOTLEY_ABSENT(cache_write<T>(const CacheWriteArgs<T>&))               \
  MOTLEY_ABSENT(embedding<T>(const EmbeddingArgs<T>&))                  \
  MOTLEY_ABSENT(embedding_backward<T>(const EmbeddingBackwardArgs<T>&)) \
  MOTLEY_ABSENT(fill<T>(T*, const Compute<T>*, int64_t))                \
  MOTLEY_ABSENT(head<T>(const HeadArgs<T>&))                            \
  MOTLEY_ABSENT(head_backward<T>(const HeadBackwardArgs<T>&))           \
  MOTLEY_ABSENT(multiply<T>(T*, const T*, const T*, int64_t))           \
  MOTLEY_ABSENT(paged_attention<T>(const PagedAttentionArgs<T>&))       \
  MOTLEY_ABSENT(rms_norm<T>(const RmsNormArgs<T>&))                     \
  MOTLEY_ABSENT(rms_norm_backward<T>(const RmsNormBackwardArgs<T>&))    \
  MOTLEY_ABSENT(rope<T>(const RopeArgs<T>&))                            \
  MOTLEY_ABSENT(round_values<T>(T*, const T*, Format, double, int64_t)) \
  MOTLEY_ABSENT(silu_mul<T>(const SiluMulArgs<T>&))                     \
  MOTLEY_ABSENT(silu_mul_backward<T>(const SiluMulBackwardArgs<T>&))    \
  MOTLEY_ABSENT(sum<T>(Compute<T>*, const T*, int64_t))                 \
  MOTLEY_ABSENT(sum_of_squares<T>(double*, const T*, int64_t))
MOTLEY_ABSENT_OF_COMPUTE(float)
MOTLEY_ABSENT_OF_COMPUTE(double)
MOTLEY_FOR_EACH_TYPE(MOTLEY_ABSENT_OF_TYPE)

}  // namespace motley::kernels::cuda
