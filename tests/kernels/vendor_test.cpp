// What of the vendor's libraries needs no GPU: which of their products serves a profile where, and what is computed
// without them.
#include "kernels/vendor.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/product_body.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

constexpr Device kEmulated{DeviceKind::emulated};

VendorProduct product_of(const char* name, int capability) {
  const VendorChoice choice = vendor_product(*find_profile(name), capability);
  CHECK((choice.product == VendorProduct::none) != choice.why.empty());
  return choice.product;
}
NumericProfile profile_of(Quantization weight, Quantization activation) {
  NumericProfile profile = *find_profile("bf16");
  profile.weight = weight;
  profile.activation = activation;
  return profile;
}

Outputs product_by(const MatmulCase& in, const Device& device, ProductBody body) {
  return run_product(in, device, [&](const MatmulArgs& args) { compute_product(body, device, args); });
}

}  // namespace

TEST_CASE("vendor: cuBLASLt's product of a profile is that of its formats and of the device's architecture") {
  for (const char* name : {"bf16", "fp16", "fp32", "h100-bf16", "a100-bf16"}) {
    CHECK(product_of(name, 80) == VendorProduct::plain);
    CHECK(product_of(name, 120) == VendorProduct::plain);
    CHECK(product_of(name, 0) == VendorProduct::none);
  }
  CHECK(product_of("h100-fp8", 90) == VendorProduct::fp8_blocks);
  CHECK(product_of("h100-fp8", 89) == VendorProduct::none);
  CHECK(product_of("h100-fp8", 100) == VendorProduct::none);
  CHECK(product_of("b200-nvfp4-w4a4", 100) == VendorProduct::nvfp4);
  CHECK(product_of("b200-nvfp4-w4a4", 90) == VendorProduct::none);
  CHECK(product_of("mxfp8", 120) == VendorProduct::mxfp8);
  CHECK(product_of("mxfp8", 90) == VendorProduct::none);
  // Weights alone are quantized, and a modelled accumulation.
  for (const char* name : {"b200-nvfp4", "mxfp4", "h100-fp8-accumulate14", "h100-fp8-channel-accumulate14"})
    CHECK(product_of(name, 100) == VendorProduct::none);
  CHECK(vendor_product(*find_profile("h100-fp8"), 100).why ==
        "cuBLASLt has scales over 128 on compute capability 9.0 alone, and this device 10.0");

  const auto fp8 = [](Format weight, Scaling of, Format activation, Scaling by, int capability) {
    return vendor_product(profile_of({weight, of}, {activation, by}), capability).product;
  };
  CHECK(fp8(Format::e4m3, Scaling::channel, Format::e4m3, Scaling::channel, 89) == VendorProduct::fp8);
  CHECK(fp8(Format::e5m2, Scaling::tensor, Format::e4m3, Scaling::none, 90) == VendorProduct::fp8);
  CHECK(fp8(Format::e4m3, Scaling::channel, Format::e4m3, Scaling::channel, 86) == VendorProduct::none);
  CHECK(fp8(Format::e5m2, Scaling::tensor, Format::e5m2, Scaling::tensor, 90) == VendorProduct::none);
  CHECK(fp8(Format::e4m3, Scaling::tensor, Format::e4m3, Scaling::block1x128, 90) == VendorProduct::none);
  CHECK(fp8(Format::e4m3, Scaling::mx32, Format::e4m3, Scaling::tensor, 100) == VendorProduct::none);
  CHECK(vendor_product(profile_of({Format::bf16, Scaling::none}, {Format::fp16, Scaling::none}), 90).product ==
        VendorProduct::none);
}

TEST_CASE("vendor: cuDNN's attention serves bf16 and fp16 on compute capability 9.x and 10.x") {
  const auto why = [](DType dtype, int64_t heads, int64_t kv_heads, int64_t head_dim, int capability) {
    return vendor_attention_refusal(dtype, heads, kv_heads, head_dim, capability);
  };
  for (const int capability : {90, 100, 103}) {
    CHECK(why(DType::bf16, 16, 8, 128, capability) == "");
    CHECK(why(DType::f16, 4, 4, 8, capability) == "");
  }
  CHECK(why(DType::f32, 4, 4, 64, 90) == "no attention in fp32");
  CHECK(why(DType::bf16, 4, 4, 64, 89) ==
        "packed sequences on compute capability 9.x and 10.x alone, and this device has 8.9");
  CHECK(why(DType::bf16, 4, 4, 64, 120) != "");
  CHECK(why(DType::bf16, 4, 4, 36, 90) == "no head_dim 36: multiples of 8 up to 128");
  CHECK(why(DType::bf16, 4, 4, 136, 90) != "");
  CHECK(why(DType::bf16, 4, 3, 64, 90) != "");

  // Every size has a plan that holds it, and few plans hold all sizes.
  for (const int64_t size : {0, 1, 2, 3, 63, 64, 65, 4097}) {
    const int64_t sequences = vendor_attention_sequences(size), length = vendor_attention_length(size);
    CHECK(sequences >= size);
    CHECK(sequences < 2 * std::max<int64_t>(size, 1));
    CHECK(length >= size);
    CHECK(length < 2 * std::max<int64_t>(size, 64));
  }
}

TEST_CASE("vendor: without the libraries a product is that of matrix units where these take it, else the chain") {
  constexpr ProductBody kVendor = ProductBody::vendor, kUnits = ProductBody::matrix_units, kChain = ProductBody::chain;
  const Shape s{17, 33, 48};
  MatmulCase halves = case_of(s, DType::bf16, DType::bf16, DType::f32);
  CHECK(difference(product_by(halves, kEmulated, kVendor), product_by(halves, kEmulated, kUnits)) == "");
  CHECK(difference(product_by(halves, kEmulated, kVendor), product_by(halves, kEmulated, kChain)) != "");
  CHECK(difference(product_by(halves, {}, kVendor), product_by(halves, {}, kChain)) == "");
  halves.k_tile = 24;
  const MatmulCase floats = case_of(s, DType::f32, DType::f32, DType::f32);
  for (const MatmulCase& in : {halves, floats})
    CHECK(difference(product_by(in, kEmulated, kVendor), product_by(in, kEmulated, kChain)) == "");
}

}  // namespace motley::kernels
