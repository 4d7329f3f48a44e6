#include "kernels/packed_matrix.h"

#include <catch2/catch.hpp>
#include <stdexcept>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/packed_panel.h"
#include "kernels/matmul.h"
#include "kernels/quantized_linear.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/packed_cases.h"

namespace motley::kernels {
namespace {

/// Columns [k0, k0 + depth) of all panels against the plain values [rows, cols], zeros beyond the last row.
bool decodes_to(const PackedMatrix& packed, const std::vector<float>& plain, int64_t k0, int64_t depth) {
  std::vector<float> out(static_cast<size_t>(16 * depth + 1), 7.0f);
  for (int64_t p = 0; p < (packed.rows + 15) / 16; ++p) {
    cpu::decode_panel(packed, p, k0, depth, out.data());
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t r = 0; r < 16; ++r) {
        const int64_t row = 16 * p + r;
        const float want = row < packed.rows ? plain[static_cast<size_t>(row * packed.cols + k0 + k)] : 0.0f;
        if (!same_value(out[static_cast<size_t>(k * 16 + r)], want)) return false;
      }
    }
    if (out.back() != 7.0f) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("packed_matrix: a panel decodes to the values of decode_codes", "[packed_matrix]") {
  on_every_instruction_set([] {
    for (const Quantization& how : kPackedForms) {
      for (const bool rare : {false, true}) {
        for (const int64_t cols : {1, 2, 7, 8, 9, 16, 31, 33, 70, 150}) {
          INFO(format_name(how.format) << " scaling " << static_cast<int>(how.scaling) << " cols " << cols);
          const QuantizedMatrix m = random_matrix(how, 37, cols, 1, rare);
          const PackedMatrix packed = pack(m);
          const std::vector<float> plain = decoded(m);
          for (int64_t k0 = 0; k0 < cols; k0 += 1 + cols / 9)
            for (const int64_t depth : {int64_t{1}, (cols - k0 + 1) / 2, cols - k0})
              REQUIRE(decodes_to(packed, plain, k0, depth));
        }
      }
    }
  });
}

TEST_CASE("packed_matrix: every code under every block scale", "[packed_matrix]") {
  on_every_instruction_set([] {
    for (const Quantization& how : kPackedForms) {
      if (how.format == Format::fp32 || how.format == Format::bf16 || how.format == Format::fp16) continue;
      // Row r has scale code r; its columns go through all bytes.
      const int64_t cols = how.format == Format::e2m1 ? 512 : 256;
      QuantizedMatrix m = random_matrix(how, 256, cols, 2, false);
      for (size_t i = 0; i < m.codes.size(); ++i) m.codes[i] = static_cast<uint8_t>(i % 256);
      const size_t blocks = m.block_codes.size() / 256;
      for (size_t i = 0; i < m.block_codes.size(); ++i) m.block_codes[i] = static_cast<uint8_t>(i / blocks);
      INFO(format_name(how.format) << " scaling " << static_cast<int>(how.scaling));
      REQUIRE(decodes_to(pack(m), decoded(m), 0, cols));
    }
  });
}

TEST_CASE("packed_matrix: every half-precision code", "[packed_matrix]") {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  on_every_instruction_set([&] {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      std::vector<float> plain;
      for (const uint16_t code : codes)
        plain.push_back(dtype == DType::bf16 ? bf16_to_float(code) : fp16_to_float(code));
      REQUIRE(decodes_to(pack(row_major(static_cast<const void*>(codes.data()), dtype, 256, 256)), plain, 0, 256));
    }
  });
}

TEST_CASE("packed_matrix: the element types of tensors, however they lie", "[packed_matrix]") {
  const int64_t rows = 21, cols = 13;
  const auto check = [&]<class T>(T) {
    const std::vector<T> memory = values<T>(2 * rows * cols, 3);
    for (const auto& [row_stride, col_stride] :
         {std::pair{cols, int64_t{1}}, {int64_t{1}, rows}, {2 * cols, int64_t{2}}}) {
      std::vector<float> plain;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          plain.push_back(static_cast<float>(memory[static_cast<size_t>(r * row_stride + c * col_stride)]));
      const PackedMatrix packed = pack({memory.data(), dtype_of<T>(), rows, cols, row_stride, col_stride});
      CHECK(decodes_to(packed, plain, 0, cols));
      CHECK(decodes_to(packed, plain, 5, 3));
    }
  };
  check(float{});
  check(bf16{});
  check(fp16{});
  const double number = 1;
  CHECK_THROWS_AS(pack(row_major(static_cast<const void*>(&number), DType::f64, 1, 1)), std::logic_error);
}

TEST_CASE("packed_matrix: unpacking gives back every code, chosen by an encoder or not", "[packed_matrix]") {
  for (const Quantization& how : kPackedForms) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {16, 32}, {37, 7}, {33, 70}, {0, 9}, {9, 0}}) {
      INFO(format_name(how.format) << " scaling " << static_cast<int>(how.scaling) << ' ' << rows << 'x' << cols);
      const QuantizedMatrix m = random_matrix(how, rows, cols, 11, true);
      const QuantizedMatrix back = unpack(pack(m), how);
      CHECK((back.rows == rows && back.cols == cols && back.how == how));
      CHECK(back.codes == m.codes);
      CHECK(back.block_codes == m.block_codes);
    }
  }
  const PackedMatrix bf16 = pack(random_matrix({Format::bf16, Scaling::none}, 3, 5, 12, false));
  CHECK_THROWS_AS(unpack(bf16, {Format::fp16, Scaling::none}), std::invalid_argument);
  const PackedMatrix nv = pack(random_matrix({Format::e2m1, Scaling::nv16}, 3, 5, 12, false));
  CHECK_THROWS_AS(unpack(nv, {Format::e2m1, Scaling::mx32}), std::invalid_argument);
}

TEST_CASE("packed_matrix: only rare codes ask for the exact decoding", "[packed_matrix]") {
  for (const Quantization& how : kPackedForms) CHECK_FALSE(pack(random_matrix(how, 20, 50, 4, false)).rare);
  QuantizedMatrix m = random_matrix({Format::e4m3, Scaling::mx32}, 20, 50, 5, false);
  m.block_codes[3] = 246;
  CHECK_FALSE(pack(m).rare);
  m.block_codes[3] = 247;
  CHECK(pack(m).rare);
  m.block_codes[3] = 120;
  m.codes[77] = 0xff;
  CHECK(pack(m).rare);
  m = random_matrix({Format::e2m1, Scaling::nv16}, 20, 50, 6, false);
  m.block_codes[9] = 0x7f;
  CHECK(pack(m).rare);
}

TEST_CASE("packed_matrix: memory is that of the stored form", "[packed_matrix]") {
  const int64_t rows = 512, cols = 1024;
  const double count = static_cast<double>(rows * cols);
  const auto w = values<float>(rows * cols, 6);
  const auto per_weight = [&](const char* profile) {
    return static_cast<double>(QuantizedLinear(w, rows, cols, *find_profile(profile)).bytes()) / count;
  };
  CHECK(per_weight("fp32") == 4.0);
  CHECK(per_weight("bf16") == 2.0);
  CHECK(per_weight("mxfp8") == 1.0 + 1.0 / 32);
  CHECK(per_weight("mxfp4") == 0.5 + 1.0 / 32);
  CHECK(per_weight("nvfp4") <= 0.5 + 1.0 / 16 + 8 / count);  // and one fp32 scale
  CHECK(per_weight("fp8") <= 1.0 + 4.0 / cols);              // and one fp32 scale a row
  for (const Quantization& how : kPackedForms) {
    const PackedMatrix packed = pack(random_matrix(how, 16 * 3 + 1, 37, 7, false));
    CHECK(reinterpret_cast<uintptr_t>(packed.codes.data()) % 64 == 0);
    CHECK(panel_bytes(packed.format, packed.cols) % 64 == 0);
    CHECK(packed.bytes() == 4 * (panel_bytes(packed.format, 37) + panel_block_bytes(packed.scaling, 37)));
  }
}

TEST_CASE("packed_matrix: empty matrices, and sizes that disagree", "[packed_matrix]") {
  for (const Quantization& how : kPackedForms) {
    CHECK(pack(random_matrix(how, 0, 9, 8, false)).bytes() == 0);
    CHECK(pack(random_matrix(how, 9, 0, 8, false)).bytes() == 0);
    QuantizedMatrix m = random_matrix(how, 3, 40, 9, false);
    m.rows = 4;
    CHECK_THROWS_AS(pack(m), std::invalid_argument);
    m.rows = -3;
    CHECK_THROWS_AS(pack(m), std::invalid_argument);
    m.rows = 3;
    m.codes.pop_back();
    CHECK_THROWS_AS(pack(m), std::invalid_argument);
    m.codes.push_back(0);
    m.block_codes.push_back(0);
    CHECK_THROWS_AS(pack(m), std::invalid_argument);
  }
}

}  // namespace motley::kernels
