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

TEST_CASE("vendor: block scales lie where cuBLASLt looks for them") {
  // Tiles of 128 x 4, in which rows 32 apart are neighbours: the documented picture of the first tile, and the next.
  CHECK(tiled_scale_place(0, 0, 6) == 0);
  CHECK(tiled_scale_place(0, 3, 6) == 3);
  CHECK(tiled_scale_place(32, 0, 6) == 4);
  CHECK(tiled_scale_place(96, 3, 6) == 15);
  CHECK(tiled_scale_place(1, 0, 6) == 16);
  CHECK(tiled_scale_place(127, 3, 6) == 511);
  CHECK(tiled_scale_place(0, 4, 6) == 512);
  CHECK(tiled_scale_place(128, 0, 6) == 1024);
  CHECK(tiled_scale_bytes(129, 6) == 2048);
  CHECK(tiled_scale_bytes(0, 6) == 0);

  const auto each_once = [](const Quantization& how, VendorProduct product, int64_t length) {
    const QuantizedMatrix m = random_matrix(how, 150, 200, 3, true);
    const VendorBytes bytes = vendor_bytes(m, product);
    const int64_t blocks = (m.cols + length - 1) / length;
    CHECK(bytes.codes == m.codes);
    REQUIRE(static_cast<int64_t>(bytes.scales.size()) == tiled_scale_bytes(m.rows, blocks));
    std::vector<int> uses(bytes.scales.size());
    int64_t wrong = 0;
    for (int64_t i = 0; i < m.rows * blocks; ++i) {
      const auto place = static_cast<size_t>(tiled_scale_place(i / blocks, i % blocks, blocks));
      ++uses[place];
      wrong += bytes.scales[place] != m.block_codes[static_cast<size_t>(i)];
    }
    for (size_t i = 0; i < uses.size(); ++i) wrong += uses[i] > 1 || (uses[i] == 0 && bytes.scales[i] != 0);
    CHECK(wrong == 0);
  };
  each_once({Format::e4m3, Scaling::mx32}, VendorProduct::mxfp8, 32);
  each_once({Format::e2m1, Scaling::nv16}, VendorProduct::nvfp4, 16);

  const auto floats = [](const VendorBytes& bytes) {
    std::vector<float> out(bytes.scales.size() / sizeof(float));
    std::memcpy(out.data(), bytes.scales.data(), bytes.scales.size());
    return out;
  };
  // Five rows of three blocks: eight rows' places for each block; codes too have room for eight rows.
  const QuantizedMatrix rows = quantize(values<float>(5 * 384, 4), 5, 384, {Format::e4m3, Scaling::block1x128});
  const VendorBytes a = vendor_bytes(rows, VendorProduct::fp8_blocks);
  REQUIRE(floats(a).size() == 3 * 8);
  CHECK(a.codes.size() == 8 * 384);
  for (size_t r = 0; r < 5; ++r)
    for (size_t b = 0; b < 3; ++b) CHECK(floats(a)[b * 8 + r] == rows.scales[r * 3 + b]);
  CHECK(floats(a)[5] == 1.0f);
  // Two blocks of rows by three of inputs: four places for each block of rows.
  const QuantizedMatrix square = quantize(values<float>(200 * 300, 5), 200, 300, {Format::e4m3, Scaling::block128x128});
  const std::vector<float> b = floats(vendor_bytes(square, VendorProduct::fp8_blocks));
  REQUIRE(b.size() == 2 * 4);
  for (size_t r = 0; r < 2; ++r)
    for (size_t k = 0; k < 3; ++k) CHECK(b[r * 4 + k] == square.scales[r * 3 + k]);

  CHECK_THROWS_WITH(vendor_bytes(square, VendorProduct::mxfp8),
                    "vendor_bytes: these scales are not those of the product");
  CHECK_THROWS(vendor_bytes(square, VendorProduct::plain));
  CHECK(vendor_bytes(quantize(values<float>(0, 1), 0, 32, {Format::e4m3, Scaling::mx32}), VendorProduct::mxfp8)
            .scales.empty());
}

TEST_CASE("vendor: codes need rows of whole blocks and of multiples of 16 bytes") {
  CHECK(vendor_shape_refusal(VendorProduct::fp8, 48, 80) == "");
  CHECK(vendor_shape_refusal(VendorProduct::fp8_blocks, 48, 256) == "");
  CHECK(vendor_shape_refusal(VendorProduct::nvfp4, 16, 32) == "");
  CHECK(vendor_shape_refusal(VendorProduct::plain, 7, 3) == "");
  CHECK(vendor_shape_refusal(VendorProduct::fp8, 48, 72) ==
        "no product of weights [48, 72]: outputs are multiples of 16, inputs of 16");
  CHECK(vendor_shape_refusal(VendorProduct::fp8, 40, 80) != "");
  CHECK(vendor_shape_refusal(VendorProduct::fp8_blocks, 48, 64) != "");
  CHECK(vendor_shape_refusal(VendorProduct::mxfp8, 48, 48) != "");
  CHECK(vendor_shape_refusal(VendorProduct::fp8, 48, 0) != "");
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
