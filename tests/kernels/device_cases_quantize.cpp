#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/quantize.h"
#include "kernels/quantize_device.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

struct QuantizeInputs {
  int64_t rows, cols;
  Quantization how;
  bool plain;
  float shared_amax;
  std::vector<float> x;

  QuantizeInputs(int64_t rows_in, int64_t cols_in, const Quantization& how_in, bool plain_in, float shared)
      : rows(rows_in),
        cols(cols_in),
        how(how_in),
        plain(plain_in),
        shared_amax(shared),
        x(values<float>(rows * cols, 5)) {
    for (size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<float>(1 + i % 5) * 0.3f;
    if (plain) return;
    const float inf = std::numeric_limits<float>::infinity();
    const float special[] = {std::numeric_limits<float>::quiet_NaN(), -inf, -0.0f, 1e-40f, 3e38f, 0.0f, -1e-20f, inf};
    for (size_t i = 0; i < x.size(); i += 37) x[i] = special[i / 37 % 8];
    std::fill_n(x.begin(), std::min<size_t>(x.size(), 160), -0.0f);  // blocks of zeros
  }
};

int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }

Outputs run_weights(const QuantizeInputs& in, const Device& device) {
  const int64_t row_bytes = code_bytes(in.how.format, in.cols);
  const int64_t block = in.how.scaling == Scaling::nv16 ? 16 : in.how.scaling == Scaling::mx32 ? 32 : 0;
  const int64_t scale_count = in.how.scaling == Scaling::channel        ? in.rows
                              : in.how.scaling == Scaling::block1x128   ? in.rows * blocks(in.cols, 128)
                              : in.how.scaling == Scaling::block128x128 ? blocks(in.rows, 128) * blocks(in.cols, 128)
                              : in.how.scaling == Scaling::mx32         ? 0
                                                                        : 1;
  const OnDevice<float> x(device, in.x), scales(device, std::vector<float>(scale_count));
  const OnDevice<uint8_t> codes(device, std::vector<uint8_t>(in.rows * row_bytes)),
      block_codes(device, std::vector<uint8_t>(block > 0 ? in.rows * blocks(in.cols, block) : 0));
  MOTLEY_DISPATCH(device, quantize,
                  QuantizeArgs{codes.data(), block_codes.data(), scales.data(), x.data(), in.rows, in.cols, in.how,
                               in.shared_amax});
  device_synchronize(device);
  return {codes.output("codes"), block_codes.output("block codes"), scales.output("scales")};
}

Outputs run_activations(const QuantizeInputs& in, const Device& device) {
  const bool blocked = in.how.scaling == Scaling::block1x128;
  const OnDevice<float> x(device, in.x), factors(device, std::vector<float>(in.rows)),
      scales(device, std::vector<float>(blocked ? in.rows * blocks(in.cols, 128) : 0));
  MOTLEY_DISPATCH(device, quantize_activations,
                  QuantizeActivationsArgs{x.data(), factors.data(), scales.data(), in.rows, in.cols, in.how});
  device_synchronize(device);
  return {x.output("x"), factors.output("factors"), scales.output("block scales")};
}

/// Half a unit in the last place of the format, or of its smallest value at the largest scale. NVFP4's block scale adds
/// its own rounding, 2^-4 of the value, and may have been rounded down by that much (then 6 saturates); MX's is a power
/// of two, up to twice too small (then the largest value saturates, by an eighth or a quarter).
double bound_of(const QuantizeInputs& in, double value, double amax) {
  const Format f = in.how.format;
  if (f == Format::fp32 || f == Format::bf16 || f == Format::fp16) return format_rounding(f, std::fabs(value));
  const double relative = f == Format::e4m3 ? 0x1p-4 : f == Format::e5m2 ? 0x1p-3 : 0.25;
  const double absolute = f == Format::e4m3 ? 0x1p-10 : f == Format::e5m2 ? 0x1p-17 : 0.25;
  const double slack = in.how.scaling == Scaling::nv16 || in.how.scaling == Scaling::mx32 ? 2 : 1.0001;
  const double unit = in.how.scaling == Scaling::none ? 1.0 : amax / largest_value(f);
  return slack * std::max(std::fabs(value) * relative, unit * absolute);
}

std::string check_values(const QuantizeInputs& in, const std::vector<float>& got) {
  const double amax = std::max(largest_magnitude(in.x), in.shared_amax);
  std::string wrong;
  for (size_t i = 0; i < got.size() && wrong.empty(); ++i)
    wrong = beyond("value", static_cast<int64_t>(i), got[i], in.x[i], bound_of(in, in.x[i], amax));
  return wrong;
}

std::string check_weights(const QuantizeInputs& in, const Outputs& outputs) {
  if (!in.plain) return {};
  QuantizedMatrix m{in.how,
                    in.rows,
                    in.cols,
                    elements<uint8_t>(outputs[0]),
                    elements<uint8_t>(outputs[1]),
                    elements<float>(outputs[2])};
  std::vector<float> got(in.x.size());
  dequantize(m, got);
  return check_values(in, got);
}

std::string check_activations(const QuantizeInputs& in, const Outputs& outputs) {
  if (!in.plain) return {};
  std::vector<float> got = elements<float>(outputs[0]);
  const auto factors = elements<float>(outputs[1]), scales = elements<float>(outputs[2]);
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t c = 0; c < in.cols; ++c) {
      got[r * in.cols + c] *= factors[r];
      if (!scales.empty()) got[r * in.cols + c] *= scales[r * blocks(in.cols, 128) + c / 128];
    }
  }
  return check_values(in, got);
}

std::string type_of(const Quantization& how) {
  if (how.scaling == Scaling::nv16) return how.four_over_six ? "nvfp4 four-over-six" : "nvfp4";
  const char* over = how.scaling == Scaling::none         ? ""
                     : how.scaling == Scaling::mx32       ? " mx"
                     : how.scaling == Scaling::tensor     ? " tensor"
                     : how.scaling == Scaling::channel    ? " channel"
                     : how.scaling == Scaling::block1x128 ? " 1x128"
                                                          : " 128x128";
  return std::string(format_name(how.format)) + over;
}

}  // namespace

void add_quantize_cases(std::vector<DeviceCase>& cases) {
  std::vector<Quantization> kinds{{Format::e2m1, Scaling::nv16}, {Format::e2m1, Scaling::nv16, true}};
  for (const Format f : {Format::e4m3, Format::e5m2, Format::e2m1})
    for (const Scaling s :
         {Scaling::tensor, Scaling::channel, Scaling::block1x128, Scaling::block128x128, Scaling::mx32})
      kinds.push_back({f, s});
  for (const Format f : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2, Format::e2m1})
    kinds.push_back({f, Scaling::none});
  struct Shape {
    int64_t rows, cols;
    bool plain = true;
    float shared_amax = 0.0f;
  };
  for (const Quantization& how : kinds) {
    // A block of threads takes 128 elements, 16 rows of a tensor, 128 NVFP4 or 4 MX blocks, 2048 values of the largest
    // magnitude.
    for (const Shape& s : {Shape{0, 5},
                           {5, 0},
                           {1, 1},
                           {3, 15},
                           {2, 16},
                           {17, 33},
                           {2, 127},
                           {130, 129},
                           {3, 259},
                           {129, 31},
                           {5, 300, false},
                           {7, 40, true, 5.0f}}) {
      const QuantizeInputs in(s.rows, s.cols, how, s.plain, s.shared_amax);
      const std::string shape = "[" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + "]" +
                                (s.plain ? "" : " special") + (s.shared_amax > 0 ? " shared" : "");
      if (how.scaling != Scaling::none)
        cases.push_back({"quantize", type_of(how), shape, [in](const Device& d) { return run_weights(in, d); },
                         [in](const Outputs& o) { return check_weights(in, o); }});
      if (how.scaling == Scaling::block128x128) continue;  // it would mix tokens
      cases.push_back({"quantize_activations", type_of(how), shape,
                       [in](const Device& d) { return run_activations(in, d); },
                       [in](const Outputs& o) { return check_activations(in, o); }});
    }
  }
}

}  // namespace motley::kernels
