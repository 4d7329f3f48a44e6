#include "kernels/hopper_fp8.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

/// fp8 operands; with `special` NaN in both.
MatmulCase fp8_case(const Shape& s, Format format, DType c, bool special = false) {
  MatmulCase in = packed_case(s, {format, Scaling::none}, DType::f32, c, special);
  for (size_t i = 0; i < in.a.bytes.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, in.a.bytes.data() + i, sizeof(float));
    value = round_to_format(value * static_cast<float>(1 << i / sizeof(float) % 9), format);
    if (special && i / sizeof(float) % 97 == 5) value = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(in.a.bytes.data() + i, &value, sizeof(float));
  }
  return in;
}

}  // namespace

void add_hopper_cases(std::vector<DeviceCase>& cases) {
  const auto add = [&](Format format, const std::string& shape, MatmulCase in) {
    const auto shared = std::make_shared<const MatmulCase>(std::move(in));
    cases.push_back({"hopper_fp8_product", std::string(format_name(format)), shape,
                     [shared](const Device& d) {
                       return run_product(
                           *shared, d, [&](const MatmulArgs& args) { MOTLEY_DISPATCH(d, hopper_fp8_product, args); });
                     },
                     // A step truncates 33 numbers, and its result, at 2^-13 of the largest.
                     [shared](const Outputs& o) {
                       const int64_t steps = shared->a.view.cols / kHopperStep + 1;
                       return check_product(*shared, o, static_cast<double>(steps) * 34 * 0x1p11 + 8);
                     }});
  };
  // Tiles are 16 x 16 outputs, 32 deep.
  for (const Format format : {Format::e4m3, Format::e5m2}) {
    for (const Shape& s :
         {Shape{0, 3, 8}, {3, 0, 8}, {2, 3, 0}, {1, 1, 1}, {16, 16, 32}, {3, 17, 31}, {17, 5, 33}, {2, 20, 290}}) {
      for (const int64_t k_tile : {0, 32}) {
        MatmulCase in = fp8_case(s, format, DType::f32);
        in.k_tile = k_tile;
        add(format, s.text() + " tiles of " + std::to_string(k_tile), in);
      }
    }
    const Shape s{3, 132, 260};
    for (const int64_t b_scale_rows : {1, 128}) {
      MatmulCase in = fp8_case(s, format, DType::bf16);
      add_block_scales(in, s, b_scale_rows);
      add_finish(in, s, DType::bf16, b_scale_rows == 1, true);
      add(format, s.text() + " block scales of " + std::to_string(b_scale_rows) + " rows", in);
    }
    add(format, "[4, 18, 70] special", fp8_case({4, 18, 70}, format, DType::f32, true));
  }
}

}  // namespace motley::kernels
