// Stands for the CUDA bodies in a build without them, so that callers link and are told.
#include <stdexcept>

#include "kernels/arrays.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/device_memory.h"
#include "kernels/head.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/quantize_device.h"

namespace motley::kernels::cuda {
namespace {
[[noreturn]] void absent() {
  throw std::runtime_error("built without CUDA: this binary has no device cuda:N (configure with -DMOTLEY_CUDA=ON)");
}
}  // namespace

bool built() { return false; }
int device_count() { return 0; }
void use_device(int) { absent(); }
void* allocate(size_t) { absent(); }
void release(void*) noexcept {}
void copy_in(void*, const void*, size_t) { absent(); }
void copy_out(void*, const void*, size_t) { absent(); }
void copy(void*, const void*, size_t) { absent(); }
void clear(void*, size_t) { absent(); }
void synchronize() { absent(); }

void matmul(const MatmulArgs&) { absent(); }
void matmul_units(const MatmulArgs&, UnitTiling) { absent(); }
void quantize(const QuantizeArgs&) { absent(); }
void quantize_activations(const QuantizeActivationsArgs&) { absent(); }

#define MOTLEY_ABSENT(T)                                     \
  template <>                                                \
  void rms_norm<T>(const RmsNormArgs<T>&) {                  \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void rms_norm_backward<T>(const RmsNormBackwardArgs<T>&) { \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void multiply<T>(T*, const T*, const T*, int64_t) {        \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void fill<T>(T*, const Compute<T>*, int64_t) {             \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void sum<T>(Compute<T>*, const T*, int64_t) {              \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void add_rows<T>(const AddRowsArgs<T>&) {                  \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void head<T>(const HeadArgs<T>&) {                         \
    absent();                                                \
  }                                                          \
  template <>                                                \
  void head_backward<T>(const HeadBackwardArgs<T>&) {        \
    absent();                                                \
  }
MOTLEY_FOR_EACH_TYPE(MOTLEY_ABSENT)

}  // namespace motley::kernels::cuda
