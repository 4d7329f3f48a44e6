// Quantized linear layers on a device, by the product that their profile has there.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "kernels/device_buffer.h"
#include "kernels/emulator/emulator.h"
#include "kernels/quantized_linear.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

constexpr Device kEmulated{DeviceKind::emulated};

NumericProfile with(const char* name, DType output) {
  NumericProfile profile = *find_profile(name);
  profile.output = output;
  return profile;
}
/// The presets, and what no preset has.
std::vector<NumericProfile> device_profiles(DType output) {
  std::vector<NumericProfile> all;
  for (const NumericProfile& profile : profiles()) all.push_back(with(profile.name.c_str(), output));
  const auto add = [&](bool invariant, Quantization weight, Quantization activation, int64_t k_tile = 0) {
    NumericProfile profile = with("bf16", output);
    profile.name = "custom";
    profile.invariant = invariant;
    profile.weight = weight;
    profile.activation = activation;
    profile.k_tile = k_tile;
    all.push_back(profile);
  };
  add(false, {Format::e4m3, Scaling::channel}, {Format::e4m3, Scaling::tensor});
  add(false, {Format::e5m2, Scaling::tensor}, {Format::e4m3, Scaling::none}, 32);
  add(false, {Format::e2m1, Scaling::nv16}, {Format::fp16, Scaling::none});
  add(false, {Format::e4m3, Scaling::block1x128}, {Format::bf16, Scaling::none},
      24);  // 128, not this tile, cuts its sums
  add(false, {Format::e5m2, Scaling::mx32}, {Format::e2m1, Scaling::mx32});
  add(true, {Format::bf16, Scaling::none}, {Format::e2m1, Scaling::none});
  add(true, {Format::e2m1, Scaling::channel}, {Format::e2m1, Scaling::block1x128});
  return all;
}

/// y of x's rows [first, first + count), in this order or backwards.
template <class T>
std::vector<T> product_of(const QuantizedLinear& linear, const NumericProfile& profile, const Device& device,
                          const std::vector<T>& x, const std::vector<T>& gate, const std::vector<T>& residual,
                          bool backwards = false) {
  const int64_t inputs = linear.inputs(), outputs = linear.outputs();
  const auto rows = static_cast<int64_t>(x.size()) / inputs;
  const auto turned = [&](const std::vector<T>& all, int64_t cols) {
    std::vector<T> out;
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = all.begin() + (backwards ? rows - 1 - r : r) * cols;
      out.insert(out.end(), at, at + cols);
    }
    return out;
  };
  const auto there = [&](const std::vector<T>& values) { return copied_to(device, values.data(), values.size()); };
  const auto x_there = there(turned(x, inputs));
  LinearEpilogue epilogue;
  std::shared_ptr<const T> gate_there, residual_there;
  if (!gate.empty()) epilogue.gate = (gate_there = there(turned(gate, outputs))).get();
  if (!residual.empty()) epilogue.residual = (residual_there = there(turned(residual, outputs))).get();
  QuantizedRows quantized;
  quantized.assign(x_there.get(), rows, inputs, profile, device);
  std::vector<T> y(static_cast<size_t>(rows * outputs));
  const std::shared_ptr<void> y_there = allocate_on(device, y.size() * sizeof(T));
  linear.forward(quantized, y_there.get(), epilogue);
  copy_bytes(y.data(), {}, y_there.get(), device, y.size() * sizeof(T));
  return turned(y, outputs);
}

std::vector<float> magnitudes(std::vector<float> values) {
  for (float& v : values) v = std::fabs(v);
  return values;
}

}  // namespace

TEST_CASE("products on a device: chain and model have the CPU's bits, matrix units err within their bound",
          "[product_body]") {
  constexpr int64_t kRows = 5, kInputs = 150, kOutputs = 21;
  const auto weights = values<float>(kOutputs * kInputs, 1), x = values<float>(kRows * kInputs, 2);
  int on_units = 0;
  for (const NumericProfile& profile : device_profiles(DType::f32)) {
    INFO(describe(profile));
    const QuantizedLinear here(weights, kOutputs, kInputs, profile),
        there(weights, kOutputs, kInputs, profile, 0.0f, kEmulated);
    const std::vector<float> want = product_of(here, profile, {}, x, {}, {}),
                             got = product_of(there, profile, kEmulated, x, {}, {});
    if (product_body(profile, kEmulated) != ProductBody::matrix_units) {
      CHECK(same_bits(got, want));
      continue;
    }
    ++on_units;
    // Sums of so few 8-bit products are exact in either; of others they are not, or it was the chain.
    const Format format = profile.activation.format;
    if (format == Format::bf16 || format == Format::fp16) CHECK_FALSE(same_bits(got, want));
    // What rounds to v rounds from -v to -|v|, so that this is the sum of the magnitudes of all products.
    const QuantizedLinear positive(magnitudes(weights), kOutputs, kInputs, profile);
    const std::vector<float> sizes = product_of(positive, profile, {}, magnitudes(x), {}, {});
    // kernels/matmul.h, and the CPU's own K roundings and those of the scales.
    const double bound = (kInputs / 16 + 1) * 0x1p-19 + (kInputs + 8) * 0x1p-24;
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      REQUIRE(sizes[i] > 0.1f);
      wrong += !(std::fabs(static_cast<double>(got[i]) - want[i]) <= bound * sizes[i]);
    }
    CHECK(wrong == 0);
  }
  CHECK(on_units >= 15);
}

TEST_CASE("products on a device: a row's bits depend on that row alone, its finish included", "[product_body]") {
  constexpr int64_t kRows = 19, kInputs = 40, kOutputs = 21;
  const auto weights = values<float>(kOutputs * kInputs, 3);
  auto x = values<bf16>(kRows * kInputs, 4);
  for (size_t i = 0; i < x.size(); ++i)  // rows of very different size, which a scale over the batch would show
    x[i] = bf16(static_cast<float>(x[i]) * std::exp2(static_cast<float>(i / kInputs % 12)));
  const auto gate = values<bf16>(kRows * kOutputs, 5), residual = values<bf16>(kRows * kOutputs, 6);
  const auto row_of = [](const std::vector<bf16>& all, int64_t row, int64_t cols) {
    return std::vector<bf16>(all.begin() + row * cols, all.begin() + (row + 1) * cols);
  };
  for (const NumericProfile& profile : device_profiles(DType::bf16)) {
    INFO(describe(profile));
    const QuantizedLinear linear(weights, kOutputs, kInputs, profile, 0.0f, kEmulated);
    const std::vector<bf16> all = product_of(linear, profile, kEmulated, x, gate, residual);
    CHECK(same_bits(product_of(linear, profile, kEmulated, x, gate, residual, true), all));
    for (const int64_t row : {int64_t{0}, int64_t{7}, kRows - 1}) {
      const std::vector<bf16> alone = product_of(linear, profile, kEmulated, row_of(x, row, kInputs),
                                                 row_of(gate, row, kOutputs), row_of(residual, row, kOutputs));
      CHECK(same_bits(alone, row_of(all, row, kOutputs)));
    }
  }
}

TEST_CASE("products on a device: rows that were quantized for the other product are refused", "[product_body]") {
  const NumericProfile &units = *find_profile("h100-fp8"), &chain = *find_profile("fp8");
  REQUIRE(units.activation == chain.activation);
  const QuantizedLinear linear(values<float>(4 * 16, 1), 4, 16, units, 0.0f, kEmulated);
  const auto x = copied_to(kEmulated, values<bf16>(16, 2).data(), 16);
  const std::shared_ptr<void> y = allocate_on(kEmulated, 4 * sizeof(bf16));
  QuantizedRows rows;
  rows.assign(x.get(), 1, 16, chain, kEmulated);
  CHECK_THROWS_WITH(linear.forward(rows, y.get()), Catch::Contains("quantized for another product"));
  rows.assign(x.get(), 1, 16, units, kEmulated);
  CHECK_NOTHROW(linear.forward(rows, y.get()));
}

TEST_CASE("products on a device: rows are kept from use to use", "[product_body]") {
  // Ones that stand for block scales are written when their room grows: smaller, larger and other rows after them.
  constexpr int64_t kInputs = 260, kOutputs = 3;
  NumericProfile profile = *find_profile("h100-fp8");
  profile.activation = {Format::bf16, Scaling::none};
  const QuantizedLinear linear(values<float>(kOutputs * kInputs, 1), kOutputs, kInputs, profile, 0.0f, kEmulated);
  QuantizedRows kept;
  for (const int64_t rows : {2, 1, 4, 3}) {
    const auto x = values<bf16>(rows * kInputs, static_cast<uint64_t>(rows));
    const auto there = copied_to(kEmulated, x.data(), x.size());
    std::vector<bf16> y(static_cast<size_t>(rows * kOutputs));
    const std::shared_ptr<void> y_there = allocate_on(kEmulated, y.size() * sizeof(bf16));
    kept.assign(there.get(), rows, kInputs, profile, kEmulated);
    linear.forward(kept, y_there.get());
    copy_bytes(y.data(), {}, y_there.get(), kEmulated, y.size() * sizeof(bf16));
    CHECK(same_bits(y, product_of(linear, profile, kEmulated, x, {}, {})));
  }
}

}  // namespace motley::kernels
