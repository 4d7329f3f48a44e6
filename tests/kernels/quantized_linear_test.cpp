#include "kernels/quantized_linear.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/parallel.h"
#include "kernels/philox.h"
#include "kernels/pointwise.h"

using namespace motley::kernels;

namespace {

std::vector<float> normals(int64_t count, uint64_t seed) {
  RandomStream random({seed, Purpose::data, 1, 0});
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}

/// Values in the profile's output type, and back.
std::vector<uint8_t> store(const std::vector<float>& values, DType dtype) {
  std::vector<uint8_t> bytes(values.size() * dtype_size(dtype));
  visit_dtype(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T value(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}
std::vector<float> load(const std::vector<uint8_t>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / dtype_size(dtype));
  visit_dtype(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<float>(value);
    }
  });
  return values;
}

std::vector<uint8_t> forward(const QuantizedLinear& linear, const std::vector<uint8_t>& x, int64_t rows, DType dtype) {
  std::vector<uint8_t> y(static_cast<size_t>(rows * linear.outputs()) * dtype_size(dtype));
  linear.forward(x.data(), rows, y.data());
  return y;
}

NumericProfile custom(Quantization weight, Quantization activation, DType output = DType::bf16, int64_t k_tile = 0) {
  NumericProfile profile;
  profile.name = "custom";
  profile.weight = weight;
  profile.activation = activation;
  profile.output = output;
  profile.k_tile = k_tile;
  return profile;
}
/// The presets, and combinations that no preset has.
std::vector<NumericProfile> all_profiles() {
  std::vector<NumericProfile> list = profiles();
  const Quantization bf16{Format::bf16, Scaling::none};
  list.push_back(custom({Format::e4m3, Scaling::channel}, {Format::e4m3, Scaling::channel}));
  list.push_back(custom({Format::e4m3, Scaling::channel}, {Format::e4m3, Scaling::tensor}, DType::f32, 16));
  list.push_back(custom({Format::e4m3, Scaling::tensor}, {Format::e5m2, Scaling::none}));
  list.push_back(custom({Format::e4m3, Scaling::block128x128}, bf16));
  list.push_back(custom({Format::e4m3, Scaling::block1x128}, {Format::e4m3, Scaling::channel}, DType::f16));
  list.push_back(custom({Format::e2m1, Scaling::nv16}, {Format::e4m3, Scaling::block1x128}));
  list.push_back(custom({Format::bf16, Scaling::none}, bf16, DType::f32));
  list.push_back(custom({Format::e5m2, Scaling::mx32}, {Format::e2m1, Scaling::mx32}, DType::f32));
  return list;
}

}  // namespace

TEST_CASE("quantized_linear: the product of the dequantized operands", "[quantized_linear]") {
  for (const auto& [rows, inputs, outputs] : {std::tuple{1, 1, 1}, {3, 130, 5}, {9, 300, 140}, {300, 17, 3}}) {
    const std::vector<float> weights = normals(static_cast<int64_t>(inputs) * outputs, 1);
    const std::vector<float> x_values = normals(static_cast<int64_t>(rows) * inputs, 2);
    for (const NumericProfile& profile : all_profiles()) {
      INFO(describe(profile) << " [" << rows << ", " << inputs << ", " << outputs << "]");
      const std::vector<uint8_t> x = store(x_values, profile.output);
      const std::vector<float> y =
          load(forward(QuantizedLinear(weights, outputs, inputs, profile), x, rows, profile.output), profile.output);
      std::vector<float> w(weights.size());
      dequantize(quantize(weights, outputs, inputs, profile.weight), w);
      const std::vector<float> seen = load(x, profile.output);
      const double unit = profile.output == DType::f32 ? 0x1p-24 : profile.output == DType::f16 ? 0x1p-11 : 0x1p-8;
      size_t wrong = 0;
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<float> row(seen.begin() + r * inputs, seen.begin() + (r + 1) * inputs);
        dequantize(quantize(row, 1, inputs, profile.activation), row);
        for (int64_t n = 0; n < outputs; ++n) {
          double exact = 0, size = 0;
          for (int64_t k = 0; k < inputs; ++k) {
            const double term =
                static_cast<double>(row[static_cast<size_t>(k)]) * w[static_cast<size_t>(n * inputs + k)];
            exact += term;
            size += std::fabs(term);
          }
          // K roundings of the sum, one per scale on either side (dequantize rounds once per value as well), one of the
          // output and 2^-24 for fp16's subnormal outputs. A step of Hopper's accumulation truncates 33 numbers and its
          // result at 2^-13 of the largest, which is no larger than `size`.
          const double sum_unit = profile.accumulation == Accumulation::fp32 ? 0 : (inputs / 32 + 1) * 34 * 0x1p-13;
          const double bound =
              ((inputs + 10) * 0x1p-24 + sum_unit) * size + unit * (std::fabs(exact) + size * 0x1p-12) + 0x1p-24;
          wrong += !(std::fabs(y[static_cast<size_t>(r * outputs + n)] - exact) <= bound);
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("quantized_linear: a row depends on itself alone", "[quantized_linear]") {
  constexpr int64_t rows = 270, inputs = 200, outputs = 70;
  const std::vector<float> weights = normals(inputs * outputs, 3);
  std::vector<float> values = normals(rows * inputs, 4);
  for (int64_t r = 0; r < rows; ++r) {  // rows of very different size, which a scale over the batch would show
    for (int64_t k = 0; k < inputs; ++k)
      values[static_cast<size_t>(r * inputs + k)] *= std::exp2(static_cast<float>(r % 12));
  }
  for (const NumericProfile& profile : all_profiles()) {
    INFO(describe(profile));
    const QuantizedLinear linear(weights, outputs, inputs, profile);
    const std::vector<uint8_t> x = store(values, profile.output);
    const std::vector<uint8_t> batch = forward(linear, x, rows, profile.output);
    const auto in = static_cast<int64_t>(inputs * dtype_size(profile.output)),
               out = static_cast<int64_t>(outputs * dtype_size(profile.output));
    for (const int64_t r : {0, 1, 6, 128, 255, 256, 269}) {
      const std::vector<uint8_t> one(x.begin() + r * in, x.begin() + (r + 1) * in);
      const std::vector<uint8_t> alone = forward(linear, one, 1, profile.output);
      REQUIRE(std::memcmp(alone.data(), batch.data() + r * out, static_cast<size_t>(out)) == 0);
    }
    set_compute_threads(3);
    const std::vector<uint8_t> threaded = forward(linear, x, rows, profile.output);
    set_compute_threads(1);
    REQUIRE(threaded == batch);
  }
}

TEST_CASE("quantized_linear: rows quantized once serve several layers", "[quantized_linear]") {
  constexpr int64_t inputs = 150;
  const std::vector<float> many = normals(9 * inputs, 11), few = normals(2 * inputs, 12);
  for (const NumericProfile& profile : all_profiles()) {
    INFO(describe(profile));
    const QuantizedLinear wide(normals(inputs * 40, 13), 40, inputs, profile);
    const QuantizedLinear narrow(normals(inputs * 7, 14), 7, inputs, profile);
    QuantizedRows rows;
    for (const std::vector<float>* values : {&many, &few, &many}) {  // also into buffers that held more
      const auto count = static_cast<int64_t>(values->size()) / inputs;
      const std::vector<uint8_t> x = store(*values, profile.output);
      rows.assign(x.data(), count, inputs, profile);
      for (const QuantizedLinear* linear : {&wide, &narrow, &wide}) {
        std::vector<uint8_t> y(static_cast<size_t>(count * linear->outputs()) * dtype_size(profile.output));
        linear->forward(rows, y.data());
        REQUIRE(y == forward(*linear, x, count, profile.output));
      }
    }
  }
}

TEST_CASE("quantized_linear: rows on a device get room for more than before", "[quantized_linear]") {
  constexpr int64_t inputs = 40;
  const Device device{DeviceKind::emulated};
  const std::vector<uint8_t> x = store(normals(9 * inputs, 11), DType::bf16);
  const auto there = copied_to(device, x.data(), x.size());
  const auto product = [&](const QuantizedLinear& linear, const QuantizedRows& rows, int64_t count) {
    const auto y = allocate_on(device, static_cast<size_t>(count * linear.outputs()) * 2);
    linear.forward(rows, y.get());
    std::vector<uint8_t> back(static_cast<size_t>(count * linear.outputs()) * 2);
    copy_bytes(back.data(), {}, y.get(), device, back.size());
    return back;
  };
  for (const NumericProfile& profile :
       {custom({Format::e4m3, Scaling::block128x128}, {Format::bf16, Scaling::none}),
        custom({Format::e4m3, Scaling::channel}, {Format::e4m3, Scaling::block1x128})}) {
    INFO(describe(profile));
    const QuantizedLinear linear(normals(inputs * 5, 14), 5, inputs, profile, 0.0f, device);
    QuantizedRows rows;
    for (const int64_t count : {2, 9, 3}) {
      QuantizedRows fresh;
      rows.assign(there.get(), count, inputs, profile, device);
      fresh.assign(there.get(), count, inputs, profile, device);
      CHECK(product(linear, rows, count) == product(linear, fresh, count));
    }
  }
  CHECK_NOTHROW(emulated::synchronize());  // nothing was stored beside a buffer
}

TEST_CASE("quantized_linear: rows of another product are refused", "[quantized_linear]") {
  const NumericProfile& fp8 = *find_profile("fp8");
  const QuantizedLinear linear(normals(64, 1), 4, 16, fp8);
  const std::vector<uint8_t> x = store(normals(2 * 32, 2), DType::bf16);
  std::vector<uint8_t> y(2 * 4 * 2);
  QuantizedRows rows;
  rows.assign(x.data(), 2, 32, fp8);
  CHECK_THROWS_AS(linear.forward(rows, y.data()), std::invalid_argument);
  rows.assign(x.data(), 2, 16, *find_profile("bf16"));
  CHECK_THROWS_AS(linear.forward(rows, y.data()), std::invalid_argument);
  rows.assign(x.data(), 2, 16, custom({Format::e4m3, Scaling::channel}, fp8.activation));
  CHECK_NOTHROW(linear.forward(rows, y.data()));
  const Quantization plain{Format::e4m3, Scaling::none};
  rows.assign(x.data(), 2, 16, custom(fp8.weight, plain));
  CHECK_NOTHROW(QuantizedLinear(normals(64, 1), 4, 16, custom(fp8.weight, plain)).forward(rows, y.data()));
  CHECK_THROWS_AS(QuantizedLinear(normals(64, 1), 4, 16, custom(plain, plain)).forward(rows, y.data()),
                  std::invalid_argument);
}

TEST_CASE("quantized_linear: gate and residual have the bits of the separate kernels", "[quantized_linear]") {
  constexpr int64_t inputs = 130, outputs = 70;
  for (const int64_t rows : {1, 5, 40}) {
    for (const NumericProfile& profile : all_profiles()) {
      INFO(describe(profile) << " rows " << rows);
      const QuantizedLinear linear(normals(inputs * outputs, 15), outputs, inputs, profile);
      const std::vector<uint8_t> x = store(normals(rows * inputs, 16), profile.output);
      const std::vector<uint8_t> gate = store(normals(rows * outputs, 17), profile.output);
      const std::vector<uint8_t> residual = store(normals(rows * outputs, 18), profile.output);
      const std::vector<uint8_t> plain = forward(linear, x, rows, profile.output);
      std::vector<uint8_t> gated = plain, added = plain, both = plain;
      visit_dtype(profile.output, [&]<class T>(T) {
        const auto at = [](const std::vector<uint8_t>& v) { return reinterpret_cast<const T*>(v.data()); };
        const auto out = [](std::vector<uint8_t>& v) { return reinterpret_cast<T*>(v.data()); };
        SiluMulArgs<T> args{};
        args.y = out(gated);
        args.gate = at(gate);
        args.up = at(plain);
        args.count = rows * outputs;
        cpu::silu_mul(args);
        cpu::add<T>(out(added), at(residual), at(plain), rows * outputs);
        cpu::add<T>(out(both), at(residual), at(gated), rows * outputs);
      });
      QuantizedRows quantized;
      quantized.assign(x.data(), rows, inputs, profile);
      std::vector<uint8_t> y(plain.size());
      linear.forward(quantized, y.data(), {gate.data(), nullptr});
      REQUIRE(y == gated);
      linear.forward(quantized, y.data(), {nullptr, residual.data()});
      REQUIRE(y == added);
      linear.forward(quantized, y.data(), {gate.data(), residual.data()});
      REQUIRE(y == both);
      y = residual;
      linear.forward(quantized, y.data(), {nullptr, y.data()});
      REQUIRE(y == added);
    }
  }
}

TEST_CASE("quantized_linear: zeros, infinities and NaN", "[quantized_linear]") {
  constexpr int64_t inputs = 150, outputs = 6;
  const std::vector<float> weights = normals(inputs * outputs, 5);
  for (const NumericProfile& profile : all_profiles()) {
    INFO(describe(profile));
    const QuantizedLinear linear(weights, outputs, inputs, profile);
    std::vector<float> values(4 * inputs, 0.0f);
    std::fill_n(values.begin() + inputs, inputs, 1.0f);
    values[2 * inputs + 5] = std::numeric_limits<float>::quiet_NaN();
    values[3 * inputs + 5] = std::numeric_limits<float>::infinity();
    const std::vector<float> y =
        load(forward(linear, store(values, profile.output), 4, profile.output), profile.output);
    for (int64_t n = 0; n < outputs; ++n) {
      CHECK(y[static_cast<size_t>(n)] == 0.0f);
      CHECK(std::isfinite(y[static_cast<size_t>(outputs + n)]));
      CHECK(std::isnan(y[static_cast<size_t>(2 * outputs + n)]));
      CHECK_FALSE(y[static_cast<size_t>(3 * outputs + n)] == 0.0f);
    }
    const QuantizedLinear zero(std::vector<float>(inputs * outputs, 0.0f), outputs, inputs, profile);
    const std::vector<float> none =
        load(forward(zero, store(std::vector<float>(inputs, 2.0f), profile.output), 1, profile.output), profile.output);
    for (const float v : none) CHECK(v == 0.0f);
  }
}

TEST_CASE("quantized_linear: empty sizes", "[quantized_linear]") {
  for (const NumericProfile& profile : all_profiles()) {
    const std::vector<float> nothing;
    CHECK(forward(QuantizedLinear(nothing, 0, 8, profile), store(std::vector<float>(16, 1.0f), profile.output), 2,
                  profile.output)
              .empty());
    for (const float v : load(forward(QuantizedLinear(nothing, 3, 0, profile), {}, 2, profile.output), profile.output))
      CHECK(v == 0.0f);
    CHECK(forward(QuantizedLinear(normals(24, 1), 3, 8, profile), {}, 0, profile.output).empty());
  }
}

TEST_CASE("quantized_linear: fp32 and bf16 profiles are plain products", "[quantized_linear]") {
  constexpr int64_t rows = 4, inputs = 96, outputs = 33;
  const std::vector<float> weights = normals(inputs * outputs, 6), values = normals(rows * inputs, 7);
  for (const char* name : {"fp32", "bf16", "fp16", "a100-bf16"}) {
    const NumericProfile& profile = *find_profile(name);
    const std::vector<uint8_t> x = store(values, profile.output), w = store(weights, profile.output);
    std::vector<uint8_t> want(static_cast<size_t>(rows * outputs) * dtype_size(profile.output));
    MatmulArgs args;
    args.a = row_major(static_cast<const void*>(x.data()), profile.output, rows, inputs);
    args.b = row_major(static_cast<const void*>(w.data()), profile.output, outputs, inputs);
    args.c = row_major(static_cast<void*>(want.data()), profile.output, rows, outputs);
    args.k_tile = profile.k_tile;
    cpu::matmul(args);
    CHECK(forward(QuantizedLinear(weights, outputs, inputs, profile), x, rows, profile.output) == want);
  }
}

TEST_CASE("quantized_linear: the reduction tile is the profile's", "[quantized_linear]") {
  constexpr int64_t inputs = 256;
  const std::vector<float> weights = normals(inputs * 40, 9), x = normals(inputs, 10);
  const Quantization fp32{Format::fp32, Scaling::none};
  std::vector<std::vector<uint8_t>> results;
  for (const int64_t k_tile : {0, 16, 32, 64, 128}) {
    const QuantizedLinear linear(weights, 40, inputs, custom(fp32, fp32, DType::f32, k_tile));
    results.push_back(forward(linear, store(x, DType::f32), 1, DType::f32));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t j = 0; j < i; ++j) CHECK(results[i] != results[j]);
  }
}

TEST_CASE("quantized_linear: fingerprints see values, scales and the encoder", "[quantized_linear]") {
  std::vector<float> weights = normals(32 * 8, 8);
  const NumericProfile& nvfp4 = *find_profile("nvfp4");
  const uint64_t base = QuantizedLinear(weights, 8, 32, nvfp4).fingerprint();
  CHECK(QuantizedLinear(weights, 8, 32, nvfp4).fingerprint() == base);
  CHECK(QuantizedLinear(weights, 8, 32, nvfp4, 100.0f).fingerprint() != base);
  CHECK(QuantizedLinear(weights, 8, 32, *find_profile("b200-nvfp4")).fingerprint() != base);
  CHECK(QuantizedLinear(weights, 8, 32, *find_profile("mxfp4")).fingerprint() != base);
  CHECK(QuantizedLinear(weights, 16, 16, nvfp4).fingerprint() != base);
  const std::vector<float> zeros(32 * 8, 0.0f);  // the same codes with and without four-over-six
  CHECK(QuantizedLinear(zeros, 8, 32, nvfp4).fingerprint() !=
        QuantizedLinear(zeros, 8, 32, *find_profile("b200-nvfp4")).fingerprint());
  weights.back() = -weights.back();
  CHECK(QuantizedLinear(weights, 8, 32, nvfp4).fingerprint() != base);
}

TEST_CASE("quantized_linear: made again from its codes and scales it is the same", "[quantized_linear]") {
  const int64_t outputs = 37, inputs = 140;
  const std::vector<float> w = normals(outputs * inputs, 21);
  for (const NumericProfile& profile : all_profiles()) {
    if (profile.output == DType::f64) continue;
    INFO(describe(profile));
    const QuantizedMatrix want = quantize(w, outputs, inputs, profile.weight);
    const QuantizedLinear made(w, outputs, inputs, profile);
    const QuantizedMatrix got = made.weight();
    CHECK(got.codes == want.codes);
    CHECK(got.block_codes == want.block_codes);
    CHECK(got.scales == want.scales);
    CHECK(QuantizedLinear(got, profile).fingerprint() == made.fingerprint());
    const std::vector<uint8_t> x = store(normals(3 * inputs, 22), profile.output);
    CHECK(forward(QuantizedLinear(got, profile), x, 3, profile.output) == forward(made, x, 3, profile.output));
  }
}

TEST_CASE("quantized_linear: codes and scales that do not add up are refused", "[quantized_linear]") {
  for (const NumericProfile& profile : all_profiles()) {
    if (profile.output == DType::f64) continue;
    const QuantizedMatrix good = quantize(normals(140 * 9, 23), 9, 140, profile.weight);
    const auto refused = [&](const auto& damage) {
      QuantizedMatrix bad = good;
      damage(bad);
      CHECK_THROWS_AS(QuantizedLinear(bad, profile), std::invalid_argument);
    };
    refused([](QuantizedMatrix& m) { m.codes.pop_back(); });
    refused([](QuantizedMatrix& m) { m.codes.push_back(0); });
    refused([](QuantizedMatrix& m) { m.block_codes.push_back(0); });
    refused([](QuantizedMatrix& m) { m.scales.push_back(1); });
    refused([](QuantizedMatrix& m) { m.rows = 10; });
    refused([](QuantizedMatrix& m) { m.cols = -140; });
    refused([](QuantizedMatrix& m) {
      m.how.format = m.how.format == Format::bf16 ? Format::fp16 : Format::bf16;
      m.how.scaling = Scaling::none;
    });
  }
}

TEST_CASE("quantized_linear: profiles that cannot be are refused", "[quantized_linear]") {
  const std::vector<float> w(16, 1.0f);
  const Quantization bf16{Format::bf16, Scaling::none};
  CHECK_THROWS_AS(QuantizedLinear(w, 4, 4, custom(bf16, bf16, DType::f64)), std::invalid_argument);
  CHECK_THROWS_AS(QuantizedLinear(w, 4, 4, custom(bf16, {Format::e4m3, Scaling::block128x128})), std::invalid_argument);
  CHECK_THROWS_AS(QuantizedLinear(w, 4, 5, custom(bf16, bf16)), std::invalid_argument);
  const Quantization channel{Format::e4m3, Scaling::channel}, mx{Format::e4m3, Scaling::mx32};
  for (const auto& [weight, activation, k_tile] :
       {std::tuple{bf16, channel, 0}, {channel, bf16, 0}, {mx, channel, 0}, {channel, mx, 0}, {channel, channel, 16}}) {
    NumericProfile profile = custom(weight, activation, DType::bf16, k_tile);
    profile.accumulation = Accumulation::hopper_fp8;
    CHECK_THROWS_AS(QuantizedLinear(w, 4, 4, profile), std::invalid_argument);
  }
}
