#include "tests/kernels/device_cases.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "kernels/device_memory.h"

namespace motley::kernels {
namespace {

template <class T>
bool is_nan(T x) {
  return std::isnan(static_cast<Compute<T>>(x));
}
template <class T>
std::string first_difference(const Output& got, const Output& want) {
  const std::vector<T> a = elements<T>(got), b = elements<T>(want);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) continue;
    if constexpr (!std::is_same_v<T, unsigned char>)
      if (is_nan(a[i]) && is_nan(b[i])) continue;
    char text[120];
    std::snprintf(text, sizeof(text), "[%zu]: got %a, want %a", i, static_cast<double>(static_cast<Compute<T>>(a[i])),
                  static_cast<double>(static_cast<Compute<T>>(b[i])));
    return got.name + text;
  }
  return {};
}

}  // namespace

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases;
  add_array_cases(cases);
  add_attention_cases(cases);
  add_norm_cases(cases);
  add_quantize_cases(cases);
  add_head_cases(cases);
  add_finish_cases(cases);
  add_matmul_cases(cases);
  add_matmul_units_cases(cases);
  add_hopper_cases(cases);
  add_grouped_cases(cases);
  add_pointwise_cases(cases);
  add_convert_cases(cases);
  add_embedding_cases(cases);
  add_cache_cases(cases);
  add_sampling_cases(cases);
  add_vendor_cases(cases);
  add_stream_cases(cases);
  return cases;
}

std::string difference(const Outputs& got, const Outputs& want) {
  if (got.size() != want.size()) return "another number of outputs";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].bytes.size() != want[i].bytes.size()) return got[i].name + ": another size";
    std::string found;
    switch (got[i].kind) {
      case Output::Kind::codes:
        found = first_difference<unsigned char>(got[i], want[i]);
        break;
      case Output::Kind::f32:
        found = first_difference<float>(got[i], want[i]);
        break;
      case Output::Kind::f64:
        found = first_difference<double>(got[i], want[i]);
        break;
      case Output::Kind::bf16:
        found = first_difference<bf16>(got[i], want[i]);
        break;
      case Output::Kind::f16:
        found = first_difference<fp16>(got[i], want[i]);
        break;
    }
    if (!found.empty()) return found;
  }
  return {};
}

void* device_allocate(const Device& device, const void* from, size_t bytes) {
  if (device.kind == DeviceKind::cuda) {
    void* const memory = cuda::allocate(bytes);
    cuda::copy_in(memory, from, bytes);
    return memory;
  }
  void* const memory = emulated::allocate(bytes);
  emulated::copy_in(memory, from, bytes);
  return memory;
}
void device_release(const Device& device, void* memory) {
  device.kind == DeviceKind::cuda ? cuda::release(memory) : emulated::release(memory);
}
void device_read(const Device& device, void* to, const void* from, size_t bytes) {
  device.kind == DeviceKind::cuda ? cuda::copy_out(to, from, bytes) : emulated::copy_out(to, from, bytes);
}
void device_synchronize(const Device& device) {
  device.kind == DeviceKind::cuda ? cuda::synchronize() : emulated::synchronize();
}

std::string beyond(const std::string& what, int64_t index, double got, double want, double bound) {
  if (std::fabs(got - want) <= bound || (got == want)) return {};
  char text[160];
  std::snprintf(text, sizeof(text), "[%lld]: got %.17g, want %.17g within %.3g", static_cast<long long>(index), got,
                want, bound);
  return what + text;
}

}  // namespace motley::kernels
