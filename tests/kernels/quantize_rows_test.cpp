// The vectorized quantizers against the scalar rules.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/parallel.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/quantize_cases.h"
#include "tests/kernels/quantize_reference.h"

using namespace motley::kernels;

namespace {

/// Magnitudes over the whole range of float, runs of equal and of tied values, both zeros, subnormals, infinities, NaN
/// with payloads: in rows of their own, and mixed.
std::vector<float> awkward(int64_t rows, int64_t cols, uint64_t seed) {
  RandomStream random({seed, Purpose::data, 1, 0});
  std::vector<float> values(static_cast<size_t>(rows * cols));
  const float specials[] = {0.0f, -0.0f, kInf,      -kInf,     kNan, std::bit_cast<float>(0xffc12345u),
                            kMax, -kMax, 0x1p-149f, 0x1p-126f, 6.0f, 448.0f};
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / std::max<int64_t>(cols, 1);
    const auto normal = static_cast<float>(random.normal());
    const float tie = static_cast<float>(static_cast<int>(random.uniform() * 33) - 16) * 0.25f;
    const auto wide = static_cast<float>(std::exp2(random.uniform() * 250 - 140) * normal);
    values[i] = row % 4 == 0 ? normal : row % 4 == 1 ? tie : row % 4 == 2 ? wide : normal * 0x1p-130f;
    if (seed % 2 == 1 && random.uniform() < 0.01) values[i] = specials[static_cast<size_t>(random.uniform() * 12)];
  }
  return values;
}

}  // namespace

TEST_CASE("quantize: every instruction set and thread count gives the scalar rules' bits", "[quantize]") {
  on_every_instruction_set([] {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 7},
                                     {3, 0},
                                     {1, 1},
                                     {5, 15},
                                     {4, 16},
                                     {9, 31},
                                     {4, 127},
                                     {131, 129},
                                     {6, 255},
                                     {6, 256},
                                     {5, 257},
                                     {260, 300}}) {
      for (const uint64_t seed : {2u, 3u}) {
        const std::vector<float> x = awkward(rows, cols, seed + 10 * static_cast<uint64_t>(cols));
        for (const Quantization& how : all_kinds()) {
          const float shared = cols % 2 == 0 ? 0.0f : 3e4f;
          const QuantizedMatrix want = reference::quantize(x, rows, cols, how, shared);
          for (const int threads : {1, 3}) {
            if (threads == 3 && rows < 100) continue;
            set_compute_threads(threads);
            const QuantizedMatrix have = quantize(x, rows, cols, how, shared);
            set_compute_threads(1);
            INFO(name_of(how) << " [" << rows << ", " << cols << "] seed " << seed << " threads " << threads);
            CHECK(have.block_codes == want.block_codes);
            CHECK(have.scales == want.scales);
            REQUIRE(have.codes == want.codes);
          }
        }
      }
    }
  });
}

TEST_CASE("quantize: activations on every instruction set are the codes of their row alone", "[quantize]") {
  on_every_instruction_set([] {
    for (const int64_t cols : {1, 15, 16, 33, 128, 255, 256, 257, 600}) {
      const std::vector<float> rows = awkward(8, cols, 7 + static_cast<uint64_t>(cols) * 2);
      for (const Quantization& how : all_kinds()) {
        if (how.scaling == Scaling::block128x128) continue;
        for (int64_t r = 0; r < 8; ++r) {
          const std::vector<float> row(rows.begin() + r * cols, rows.begin() + (r + 1) * cols);
          const QuantizedMatrix m = reference::quantize(row, 1, cols, how);
          std::vector<float> want(row.size()), have = row, scales(m.scales.size() + 1, -1.0f);
          decode_codes(m, want);
          const float factor = quantize_activation(have.data(), cols, how, scales.data());
          size_t wrong = 0;
          for (size_t i = 0; i < row.size(); ++i) {
            const auto w = std::bit_cast<uint32_t>(want[i]), h = std::bit_cast<uint32_t>(have[i]);
            wrong += std::isnan(want[i]) ? !std::isnan(have[i]) : w != h;
          }
          INFO(name_of(how) << " " << cols << " columns, row " << r);
          REQUIRE(wrong == 0);
          scales.pop_back();
          if (how.scaling == Scaling::block1x128)
            REQUIRE(scales == m.scales);
          else
            REQUIRE(factor == (m.scales.empty() ? 1.0f : m.scales[0]));
        }
      }
    }
  });
}

TEST_CASE("quantize: the largest magnitude of many values", "[quantize]") {
  std::vector<float> x = normals(200'003, 4);
  for (const int threads : {1, 2, 3}) {
    set_compute_threads(threads);
    x[200'002] = -77.0f;
    CHECK(largest_magnitude(x) == 77.0f);
    x[0] = kNan;
    CHECK(largest_magnitude(x) == 77.0f);
    x[99'999] = -kInf;
    CHECK(largest_magnitude(x) == kMax);
    x[99'999] = 0.0f;
    set_compute_threads(1);
  }
  CHECK(largest_magnitude({}) == 0.0f);
}
