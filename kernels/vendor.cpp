#include "kernels/vendor.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <mutex>
#include <set>

namespace motley::kernels {
namespace {

bool is_fp8(Format format) { return format == Format::e4m3 || format == Format::e5m2; }
bool has_row_scales(Scaling scaling) {
  return scaling == Scaling::none || scaling == Scaling::tensor || scaling == Scaling::channel;
}
std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}
VendorChoice needs(VendorProduct product, bool there, const std::string& what, int capability) {
  if (there) return {product, ""};
  return {VendorProduct::none, "cuBLASLt has " + what + ", and this device " + capability_text(capability)};
}

}  // namespace

VendorChoice vendor_product(const NumericProfile& profile, int capability) {
  const Quantization &w = profile.weight, &a = profile.activation;
  if (profile.accumulation != Accumulation::fp32)
    return {VendorProduct::none, "its accumulation is modelled, which no library is"};
  if (w.scaling == Scaling::none && a.scaling == Scaling::none && w.format == a.format &&
      (w.format == Format::fp32 || w.format == Format::bf16 || w.format == Format::fp16))
    return needs(VendorProduct::plain, capability >= 80, "these products from compute capability 8.0 on", capability);
  if (w.scaling == Scaling::nv16 && a.scaling == Scaling::nv16)
    return needs(VendorProduct::nvfp4, capability >= 100, "NVFP4 from compute capability 10.0 on", capability);
  if (is_fp8(w.format) && is_fp8(a.format) && (w.format == Format::e4m3 || a.format == Format::e4m3)) {
    if (w.scaling == Scaling::mx32 && a.scaling == Scaling::mx32)
      return needs(VendorProduct::mxfp8, capability >= 100, "MXFP8 from compute capability 10.0 on", capability);
    if (w.scaling == Scaling::block128x128 && a.scaling == Scaling::block1x128)
      return needs(VendorProduct::fp8_blocks, capability == 90, "scales over 128 on compute capability 9.0 alone",
                   capability);
    if (has_row_scales(w.scaling) && has_row_scales(a.scaling))
      return needs(VendorProduct::fp8, capability >= 89, "fp8 from compute capability 8.9 on", capability);
  }
  return {VendorProduct::none, "cuBLASLt has no product of these formats and scales"};
}

std::string vendor_shape_refusal(VendorProduct product, int64_t outputs, int64_t inputs) {
  const int64_t in = product == VendorProduct::fp8          ? 16
                     : product == VendorProduct::mxfp8      ? 32
                     : product == VendorProduct::nvfp4      ? 32
                     : product == VendorProduct::fp8_blocks ? 128
                                                            : 1;
  const int64_t out = product == VendorProduct::none || product == VendorProduct::plain ? 1 : 16;
  if (inputs > 0 && inputs % in == 0 && outputs > 0 && outputs % out == 0) return {};
  return "no product of weights [" + std::to_string(outputs) + ", " + std::to_string(inputs) +
         "]: outputs are multiples of " + std::to_string(out) + ", inputs of " + std::to_string(in);
}

std::string vendor_attention_refusal(DType dtype, int64_t heads, int64_t kv_heads, int64_t head_dim, int capability) {
  if (dtype != DType::bf16 && dtype != DType::f16) return std::string("no attention in ") + dtype_name(dtype);
  if (capability < 90 || capability >= 110)
    return "packed sequences on compute capability 9.x and 10.x alone, and this device has " +
           capability_text(capability);
  if (head_dim % 8 != 0 || head_dim > 128)
    return "no head_dim " + std::to_string(head_dim) + ": multiples of 8 up to 128";
  if (heads % kv_heads != 0) return "no heads that are not a multiple of the key heads";
  return {};
}

int64_t vendor_attention_sequences(int64_t sequences) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(sequences, 1))));
}
int64_t vendor_attention_length(int64_t longest) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(longest, 64))));
}

void note_vendor_refusal(const std::string& what) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(what).second) std::fprintf(stderr, "motley: %s; our own kernel computes it\n", what.c_str());
}

}  // namespace motley::kernels
