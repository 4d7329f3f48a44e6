#include "kernels/cpu/few_rows.h"

#include <catch2/catch.hpp>
#include <limits>
#include <tuple>

#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/matmul_inner.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/packed_cases.h"

namespace motley::kernels {
namespace {

/// The contract, word for word: the sum of one element before its finish.
float chain(const MatmulArgs& args, const float* a, const float* b, int64_t m, int64_t n, float start) {
  const int64_t depth = args.a.cols, tile = args.k_tile == 0 ? depth : args.k_tile, blocks = (depth + 127) / 128;
  float total = start;
  for (int64_t k0 = 0; k0 < depth; k0 += tile) {
    float sum = args.k_tile == 0 ? total : 0.0f;
    for (int64_t k = k0; k < std::min(depth, k0 + tile); ++k) sum = std::fma(a[k], b[k], sum);
    if (args.k_tile == 0) {
      total = sum;
    } else if (args.a_scales == nullptr) {
      total += sum;
    } else {
      const float scale =
          args.a_scales[m * blocks + k0 / 128] * args.b_scales[n / args.b_scale_rows * blocks + k0 / 128];
      total = std::fma(sum, scale, total);
    }
  }
  return total;
}

/// The weights plain and packed.
struct Weights {
  std::vector<float> plain;
  PackedMatrix packed;
  explicit Weights(const QuantizedMatrix& m) : plain(decoded(m)), packed(pack(m)) {}
};

/// Runs the product into a copy of `c` and compares every element with its chain, finished as matmul_finish.h does.
/// A is plain float [M, K] beside the view in args.
template <class T>
void check(MatmulArgs args, const std::vector<float>& a, const Weights& w, const std::vector<T>& c) {
  const int64_t m = args.a.rows, n = w.packed.rows, depth = args.a.cols;
  std::vector<T> got = c, want = c;
  args.packed = &w.packed;
  args.c = row_major(static_cast<void*>(got.data()), dtype_of<T>(), m, n);
  cpu::few_rows_product(args);
  args.c.data = want.data();
  for (int64_t r = 0; r < m; ++r) {
    std::vector<float> sums;
    for (int64_t j = 0; j < n; ++j) {
      const float start = args.accumulate ? static_cast<float>(c[static_cast<size_t>(r * n + j)]) : 0.0f;
      sums.push_back(chain(args, a.data() + r * depth, w.plain.data() + j * depth, r, j, start));
    }
    cpu::finish_row(args, r, 0, n, sums.data());
  }
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += !same_value(static_cast<float>(got[i]), static_cast<float>(want[i]));
  REQUIRE(wrong == 0);
}

ConstMatrix view(const std::vector<float>& a, int64_t rows, int64_t cols) {
  return row_major(static_cast<const void*>(a.data()), DType::f32, rows, cols);
}

std::string name(const Quantization& how) {
  return std::string(format_name(how.format)) + " scaling " + std::to_string(static_cast<int>(how.scaling));
}

}  // namespace

TEST_CASE("few_rows: every stored form gives the scalar chain of its decoded values", "[few_rows]") {
  on_every_instruction_set([] {
    for (const Quantization& how : kPackedForms) {
      for (const bool rare : {false, true}) {
        for (int64_t k = 1; k <= 74; ++k) {
          const int64_t depth = k <= 70 ? k : 131 * (k - 70) + 2;
          const int64_t m = 1 + k % 16, n = 1 + (k * 37) % 150;
          INFO(name(how) << " rare " << rare << ", " << m << " x " << n << " x " << depth);
          const Weights w(random_matrix(how, n, depth, static_cast<uint64_t>(k), rare));
          const auto a = values<float>(m * depth, 2);
          check(MatmulArgs{.a = view(a, m, depth)}, a, w, std::vector<float>(static_cast<size_t>(m * n)));
        }
      }
    }
  });
}

TEST_CASE("few_rows: every number of rows and panels", "[few_rows]") {
  on_every_instruction_set([] {
    for (const Quantization& how : kPackedForms) {
      for (const int64_t n : {1, 16, 17, 48, 65, 128, 145}) {
        const Weights w(random_matrix(how, n, 45, 3, false));
        for (int64_t m = 1; m <= 18; ++m) {
          INFO(name(how) << ", " << m << " x " << n);
          const auto a = values<float>(m * 45, 4);
          check(MatmulArgs{.a = view(a, m, 45)}, a, w, std::vector<float>(static_cast<size_t>(m * n)));
        }
      }
    }
  });
}

TEST_CASE("few_rows: tiles of k and block scales", "[few_rows]") {
  const int64_t n = 150, depth = 300;
  const auto b_scales = values<float>(n * 3, 5);
  on_every_instruction_set([&] {
    for (const Quantization& how : kPackedForms) {
      const Weights w(random_matrix(how, n, depth, 6, false));
      for (const int64_t m : {1, 2, 3, 7, 9, 16}) {
        INFO(name(how) << " rows " << m);
        const auto a = values<float>(m * depth, 7), a_scales = values<float>(m * 3, 8);
        const auto c = values<float>(m * n, 9);
        MatmulArgs args{.a = view(a, m, depth)};
        for (const int64_t k_tile : {3, 16, 20, 32, 128, 300, 1000}) {
          args.k_tile = k_tile;
          for (const bool accumulate : {false, true}) {
            args.accumulate = accumulate;
            check(args, a, w, c);
          }
        }
        args.accumulate = false;
        args.k_tile = 128;
        args.a_scales = a_scales.data();
        args.b_scales = b_scales.data();
        for (const int64_t rows : {1, 20, 128, 150}) {
          args.b_scale_rows = rows;
          check(args, a, w, c);
        }
      }
    }
  });
}

TEST_CASE("few_rows: a tail of K adds no product", "[few_rows]") {
  // Chains that start from -0 and add products that are -0 stay -0; one more product of zeros would make them +0.
  on_every_instruction_set([] {
    for (const Quantization& how : kPackedForms) {
      for (const int64_t depth : {1, 3, 5, 7, 9, 15, 17, 31, 33, 41}) {
        for (const int64_t m : {1, 2, 4, 8}) {
          QuantizedMatrix q = quantize(std::vector<float>(static_cast<size_t>(20 * depth), 1.0f), 20, depth, how);
          const std::vector<float> a(static_cast<size_t>(m * depth), -0.0f);
          MatmulArgs args{.a = view(a, m, depth)};
          args.accumulate = true;
          const std::vector<float> c(static_cast<size_t>(m * 20), -0.0f);
          INFO(name(how) << " depth " << depth);
          check(args, a, Weights(q), c);
          auto got = c;
          const PackedMatrix packed = pack(q);
          args.packed = &packed;
          args.c = row_major(static_cast<void*>(got.data()), DType::f32, m, 20);
          cpu::few_rows_product(args);
          REQUIRE(same_bits(got, c));
        }
      }
    }
  });
}

TEST_CASE("few_rows: extreme inputs, and what they do to their own row alone", "[few_rows]") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const int64_t n = 40, depth = 77;
  const float extremes[] = {nan, inf, -inf, 0x1p125f, -0x1.fffffep127f, 0x1p-149f, -0x1p-130f, -0.0f};
  on_every_instruction_set([&] {
    for (const Quantization& how : kPackedForms) {
      for (const bool rare : {false, true}) {
        const Weights w(random_matrix(how, n, depth, 10, rare));
        for (const int64_t m : {1, 2, 5, 8}) {
          for (const float extreme : extremes) {
            auto a = values<float>(m * depth, 11);
            for (int64_t k = 5; k < depth; k += 17) a[static_cast<size_t>((m - 1) * depth + k)] = extreme;
            INFO(name(how) << " rare " << rare << " rows " << m << " value " << extreme);
            check(MatmulArgs{.a = view(a, m, depth)}, a, w, std::vector<float>(static_cast<size_t>(m * n)));
          }
        }
      }
    }
  });
}

TEST_CASE("few_rows: inputs and outputs of every type and layout, and the finish", "[few_rows]") {
  const int64_t n = 70, depth = 90;
  on_every_instruction_set([&] {
    for (const Quantization& how : kPackedForms) {
      const Weights w(random_matrix(how, n, depth, 12, false));
      const auto with = [&]<class A, class Out>(A, Out, int64_t m) {
        const auto memory = values<A>(2 * m * depth, 13);
        for (const auto& [row, col] : {std::pair{depth, int64_t{1}}, {int64_t{1}, m}, {2 * depth, int64_t{2}}}) {
          std::vector<float> a;
          for (int64_t r = 0; r < m; ++r)
            for (int64_t k = 0; k < depth; ++k)
              a.push_back(static_cast<float>(memory[static_cast<size_t>(r * row + k * col)]));
          MatmulArgs args{.a = {memory.data(), dtype_of<A>(), m, depth, row, col}};
          args.alpha = 0.75f;
          const auto c = values<Out>(m * n, 14), residual = values<Out>(m * n, 15);
          INFO(name(how) << " rows " << m);
          check(args, a, w, c);
          const auto column_factors = values<float>(n, 16), row_factors = values<float>(m, 17);
          args.column_factors = column_factors.data();
          args.row_factors = row_factors.data();
          args.residual = row_major(static_cast<const void*>(residual.data()), dtype_of<Out>(), m, n);
          check(args, a, w, c);
        }
      };
      for (const int64_t m : {1, 3, 8}) {
        with(float{}, bf16{}, m);
        with(bf16{}, bf16{}, m);
        with(fp16{}, fp16{}, m);
        with(bf16{}, float{}, m);
      }
    }
  });
  const double number = 1;
  const Weights w(random_matrix(kPackedForms[0], 1, 1, 1, false));
  float c = 0;
  MatmulArgs args{.a = row_major(static_cast<const void*>(&number), DType::f64, 1, 1), .packed = &w.packed};
  args.c = row_major(static_cast<void*>(&c), DType::f32, 1, 1);
  CHECK_THROWS_AS(cpu::few_rows_product(args), std::logic_error);
}

TEST_CASE("few_rows: no thread, no other row and no split changes a row", "[few_rows]") {
  const int64_t m = 7, n = 500, depth = 1001;
  for (const Quantization& how : kPackedForms) {
    INFO(name(how));
    const PackedMatrix packed = pack(random_matrix(how, n, depth, 19, false));
    const auto a = values<float>(m * depth, 20);
    const auto product = [&](int64_t first, int64_t rows) {
      std::vector<float> c(static_cast<size_t>(rows * n));
      MatmulArgs args{.a = row_major(static_cast<const void*>(a.data() + first * depth), DType::f32, rows, depth)};
      args.packed = &packed;
      args.c = row_major(static_cast<void*>(c.data()), DType::f32, rows, n);
      cpu::few_rows_product(args);
      return c;
    };
    const auto whole = product(0, m);
    for (int64_t r = 0; r < m; ++r) {
      const auto row = product(r, 1);
      REQUIRE(std::memcmp(row.data(), whole.data() + r * n, row.size() * sizeof(float)) == 0);
    }
    for (const int threads : {2, 3}) {
      const Threads scope(threads);
      CHECK(same_bits(whole, product(0, m)));
    }
  }
}

}  // namespace motley::kernels
