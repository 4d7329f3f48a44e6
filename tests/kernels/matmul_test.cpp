#include "kernels/matmul.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernels/cpu/matmul_inner.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

/// The contract, word for word: one chain with k ascending, cut into tiles, scaled, rounded once.
template <class T>
Compute<T> chain(const Compute<T>* a, const Compute<T>* b, int64_t depth, int64_t k_tile, Compute<T> start) {
  using C = Compute<T>;
  const int64_t tile = k_tile == 0 ? depth : k_tile;
  C total = start;
  for (int64_t k0 = 0; k0 < depth; k0 += tile) {
    C sum = k_tile == 0 ? total : C{0};
    for (int64_t k = k0; k < std::min(depth, k0 + tile); ++k) sum = std::fma(a[k], b[k], sum);
    total = k_tile == 0 ? sum : total + sum;
  }
  return total;
}

struct Shape {
  int64_t m, n, k;
};
/// How an operand lies in memory.
enum class Layout { rows, columns, spread };

template <class T>
struct Operand {
  std::vector<T> memory;
  std::vector<Compute<T>> plain;  // [rows, cols]
  ConstMatrix view;

  Operand(int64_t rows, int64_t cols, Layout layout, uint64_t seed) {
    const int64_t row = layout == Layout::rows ? cols + 3 : layout == Layout::columns ? 1 : 2 * cols + 1;
    const int64_t col = layout == Layout::rows ? 1 : layout == Layout::columns ? rows + 5 : 2;
    memory = values<T>(rows * row + cols * col + 1, seed);
    view = {memory.data(), dtype_of<T>(), rows, cols, row, col};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        plain.push_back(static_cast<Compute<T>>(memory[static_cast<size_t>(r * row + c * col)]));
  }
};

template <class A, class B, class Out>
void check_product(const Shape& s, Layout a_layout, Layout b_layout, int64_t k_tile) {
  using C = Compute<Out>;
  const Operand<A> a(s.m, s.k, a_layout, 1);
  const Operand<B> b(s.n, s.k, b_layout, 2);
  std::vector<Out> c(static_cast<size_t>(s.m * (s.n + 2)), as<Out>(7.0));
  MatmulArgs args;
  args.a = a.view;
  args.b = b.view;
  args.c = {c.data(), dtype_of<Out>(), s.m, s.n, s.n + 2, 1};
  args.k_tile = k_tile;
  cpu::matmul(args);
  bool equal = true;
  for (int64_t r = 0; r < s.m; ++r) {
    for (int64_t j = 0; j < s.n; ++j) {
      const C want = chain<Out>(a.plain.data() + r * s.k, b.plain.data() + j * s.k, s.k, k_tile, C{0});
      equal = equal && real(c[static_cast<size_t>(r * (s.n + 2) + j)]) == real(static_cast<Out>(want));
    }
    for (int64_t j = s.n; j < s.n + 2; ++j) equal = equal && real(c[static_cast<size_t>(r * (s.n + 2) + j)]) == 7.0;
  }
  INFO(s.m << " x " << s.n << " x " << s.k << ", tile " << k_tile);
  CHECK(equal);
}

const Shape kShapes[] = {{1, 1, 1},   {1, 20, 128},  {3, 16, 17},    {7, 15, 5},      {8, 48, 256},   {9, 49, 257},
                         {4, 33, 64}, {13, 100, 31}, {131, 17, 300}, {137, 70, 1100}, {2, 130, 1030}, {25, 64, 300}};

}  // namespace

TEST_CASE("a product is the scalar chain, bit for bit, on every instruction set") {
  const int sets = cpu::instruction_sets();
  REQUIRE(sets >= 1);
  for (int set = 0; set < sets; ++set) {
    cpu::use_instruction_set(set);
    for (const Shape& s : kShapes) {
      for (const int64_t k_tile : {0, 16, 128, 300}) {
        check_product<float, float, float>(s, Layout::rows, Layout::rows, k_tile);
        check_product<float, float, float>(s, Layout::columns, Layout::columns, k_tile);
        check_product<float, float, bf16>(s, Layout::rows, Layout::columns, k_tile);
        check_product<bf16, bf16, bf16>(s, Layout::rows, Layout::columns, k_tile);
        check_product<float, fp16, fp16>(s, Layout::columns, Layout::columns, k_tile);
        check_product<bf16, float, float>(s, Layout::columns, Layout::spread, k_tile);
        check_product<fp16, bf16, float>(s, Layout::spread, Layout::rows, k_tile);
      }
    }
  }
  cpu::use_best_instruction_set();
}

TEST_CASE("a float64 product is the scalar chain in double") {
  for (const Shape& s : kShapes) {
    check_product<double, double, double>(s, Layout::rows, Layout::columns, 0);
    check_product<double, double, double>(s, Layout::spread, Layout::rows, 16);
  }
}

TEST_CASE("a product stays within the error of its chain") {
  // A chain of K fused multiply-adds errs by at most K eps sum |a b|, to first order.
  const int64_t m = 20, n = 30, k = 700;
  const auto a = values<float>(m * k, 3), b = values<float>(n * k, 4);
  std::vector<float> c(static_cast<size_t>(m * n));
  cpu::matmul({.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k),
               .b = row_major(static_cast<const void*>(b.data()), DType::f32, n, k),
               .c = row_major(static_cast<void*>(c.data()), DType::f32, m, n)});
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t j = 0; j < n; ++j) {
      double want = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double term = static_cast<double>(a[static_cast<size_t>(r * k + i)]) * b[static_cast<size_t>(j * k + i)];
        want += term;
        size += std::fabs(term);
      }
      REQUIRE(std::fabs(c[static_cast<size_t>(r * n + j)] - want) <= 1.01 * k * 0x1p-24 * size);
    }
  }
}

TEST_CASE("accumulate continues the chains of C") {
  const auto check = [](const auto& a, const auto& b, int64_t k_tile) {
    const int64_t m = a.view.rows, n = b.view.rows, k = a.view.cols;
    const auto start = values<float>(m * n, 7);
    auto c = start;
    MatmulArgs args{.a = a.view, .b = b.view, .c = row_major(static_cast<void*>(c.data()), DType::f32, m, n)};
    args.accumulate = true;
    args.k_tile = k_tile;
    cpu::matmul(args);
    std::vector<float> want;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t j = 0; j < n; ++j)
        want.push_back(chain<float>(a.plain.data() + r * k, b.plain.data() + j * k, k, k_tile,
                                    start[static_cast<size_t>(r * n + j)]));
    INFO(m << " x " << n << " x " << k << ", tile " << k_tile);
    CHECK(same_bits(c, want));
  };
  for (const Shape& s : kShapes) {
    for (const int64_t k_tile : {0, 128}) {
      check(Operand<bf16>(s.m, s.k, Layout::columns, 5), Operand<float>(s.n, s.k, Layout::rows, 6), k_tile);
      check(Operand<float>(s.m, s.k, Layout::columns, 5), Operand<float>(s.n, s.k, Layout::columns, 6), k_tile);
    }
  }
  // Two halves of K, one after the other, are the whole.
  const auto a = values<double>(5 * 64, 8), b = values<double>(3 * 64, 9);
  std::vector<double> whole(15), halves(15);
  const ConstMatrix av = row_major(static_cast<const void*>(a.data()), DType::f64, 5, 64);
  const ConstMatrix bv = row_major(static_cast<const void*>(b.data()), DType::f64, 3, 64);
  cpu::matmul({.a = av, .b = bv, .c = row_major(static_cast<void*>(whole.data()), DType::f64, 5, 3)});
  for (const int64_t half : {0, 32}) {
    MatmulArgs args{.a = {a.data() + half, DType::f64, 5, 32, 64, 1}, .b = {b.data() + half, DType::f64, 3, 32, 64, 1}};
    args.c = row_major(static_cast<void*>(halves.data()), DType::f64, 5, 3);
    args.accumulate = half != 0;
    cpu::matmul(args);
  }
  CHECK(same_bits(whole, halves));
}

TEST_CASE("block scales multiply sums of 128 products") {
  const int64_t m = 11, n = 150, k = 300, blocks = 3;
  const Operand<float> a(m, k, Layout::rows, 10), b(n, k, Layout::rows, 11);
  const auto a_scales = values<float>(m * blocks, 12), b_scales = values<float>(2 * blocks, 13);
  std::vector<float> c(static_cast<size_t>(m * n)), want;
  const PackedMatrix packed = pack(b.view);
  MatmulArgs args{.a = a.view, .packed = &packed, .c = row_major(static_cast<void*>(c.data()), DType::f32, m, n)};
  args.k_tile = 128;
  args.alpha = 0.75f;
  args.a_scales = a_scales.data();
  args.b_scales = b_scales.data();
  cpu::matmul(args);
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        const float* x = a.plain.data() + r * k + block * 128;
        const float partial =
            chain<float>(x, b.plain.data() + j * k + block * 128, std::min<int64_t>(128, k - block * 128), 0, 0.0f);
        const float scale =
            a_scales[static_cast<size_t>(r * blocks + block)] * b_scales[static_cast<size_t>(j / 128 * blocks + block)];
        sum = std::fma(partial, scale, sum);
      }
      want.push_back(sum * 0.75f);
    }
  }
  CHECK(same_bits(c, want));
}

TEST_CASE("a row of C depends on its own row of A alone, on no split, and on no thread") {
  const int64_t m = 75, n = 140, k = 333;
  const auto a = values<bf16>(m * k, 14), b = values<bf16>(n * k, 15);
  const ConstMatrix bv = row_major(static_cast<const void*>(b.data()), DType::bf16, n, k);
  const PackedMatrix packed = pack(bv);
  const auto product = [&](int64_t first, int64_t rows, bool use_packed) {
    std::vector<float> c(static_cast<size_t>(rows * n));
    MatmulArgs args{.a = row_major(static_cast<const void*>(a.data() + first * k), DType::bf16, rows, k),
                    .c = row_major(static_cast<void*>(c.data()), DType::f32, rows, n)};
    if (use_packed)
      args.packed = &packed;
    else
      args.b = bv;
    cpu::matmul(args);
    return c;
  };
  const auto whole = product(0, m, false);
  CHECK(same_bits(whole, product(0, m, true)));
  for (int64_t r = 0; r < m; ++r) {
    const auto row = product(r, 1, r % 2 == 0);
    REQUIRE(std::memcmp(row.data(), whole.data() + r * n, row.size() * sizeof(float)) == 0);
  }
  for (const int threads : {2, 4}) {
    const Threads scope(threads);
    CHECK(same_bits(whole, product(0, m, false)));
    CHECK(same_bits(whole, product(0, m, true)));
  }
}

TEST_CASE("large products are split without a change") {
  // Enough work for several threads, and enough of B for several blocks of panels.
  const int64_t m = 40, n = 2100, k = 1100;
  const auto a = values<float>(m * k, 16);
  const auto b = values<bf16>(n * k, 17);
  const auto product = [&] {
    std::vector<float> c(static_cast<size_t>(m * n));
    cpu::matmul({.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k),
                 .b = row_major(static_cast<const void*>(b.data()), DType::bf16, n, k),
                 .c = row_major(static_cast<void*>(c.data()), DType::f32, m, n)});
    return c;
  };
  const auto serial = product();
  for (const int threads : {2, 4}) {
    const Threads scope(threads);
    CHECK(same_bits(serial, product()));
  }
  // fp32 panels are read where they lie, whatever block of them it is.
  std::vector<float> plain(b.begin(), b.end()), from_panels(static_cast<size_t>(m * n));
  const PackedMatrix packed = pack(row_major(static_cast<const void*>(plain.data()), DType::f32, n, k));
  cpu::matmul({.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k),
               .packed = &packed,
               .c = row_major(static_cast<void*>(from_panels.data()), DType::f32, m, n)});
  CHECK(same_bits(serial, from_panels));
  std::vector<float> last(k);
  for (int64_t i = 0; i < k; ++i)
    last[static_cast<size_t>(i)] = static_cast<float>(b[static_cast<size_t>((n - 1) * k + i)]);
  CHECK(serial.back() == chain<float>(a.data() + (m - 1) * k, last.data(), k, 0, 0.0f));
}

TEST_CASE("a piece of C writes its own columns only") {
  // Three rows on four threads are split over columns, in pieces that are no multiple of a tile.
  const int64_t m = 3, n = 16 * 13, k = 9000;
  const auto a = values<float>(m * k, 20), b = values<float>(n * k, 21);
  const auto product = [&] {
    std::vector<float> c(static_cast<size_t>(m * n), 1.0f);
    MatmulArgs args{.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k),
                    .b = row_major(static_cast<const void*>(b.data()), DType::f32, n, k),
                    .c = row_major(static_cast<void*>(c.data()), DType::f32, m, n)};
    args.accumulate = true;
    cpu::matmul(args);
    return c;
  };
  const auto serial = product();
  const Threads scope(4);
  for (int i = 0; i < 10; ++i) REQUIRE(same_bits(serial, product()));
  std::vector<float> c(static_cast<size_t>(m * n), -1.0f);
  const MatmulArgs args{.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k),
                        .b = row_major(static_cast<const void*>(b.data()), DType::f32, n, k),
                        .c = row_major(static_cast<void*>(c.data()), DType::f32, m, n)};
  std::vector<float> panels(static_cast<size_t>(4 * 16 * k));
  for (int64_t p = 0; p < 4; ++p) cpu::pack_panel(args.b, 4 + p, panels.data() + p * 16 * k);
  cpu::matmul_piece({&args, panels.data(), 16 * k, 16, 0, m, 4, 8, n});
  for (int64_t j = 0; j < n; ++j) REQUIRE((c[static_cast<size_t>(j)] != -1.0f) == (j >= 64 && j < 128));
}

TEST_CASE("empty products") {
  std::vector<float> c{1, 2, 3, 4};
  const float value = 1;
  MatmulArgs args{.a = row_major(static_cast<const void*>(&value), DType::f32, 2, 0),
                  .b = row_major(static_cast<const void*>(&value), DType::f32, 2, 0),
                  .c = row_major(static_cast<void*>(c.data()), DType::f32, 2, 2)};
  args.accumulate = true;
  cpu::matmul(args);
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  args.accumulate = false;
  cpu::matmul(args);
  CHECK(c == std::vector<float>{0, 0, 0, 0});
  const std::vector<float> residual{-1, 2, -3, 4};
  args.residual = row_major(static_cast<const void*>(residual.data()), DType::f32, 2, 2);
  cpu::matmul(args);
  CHECK(c == residual);
  args.c.rows = args.a.rows = 0;
  cpu::matmul(args);
  const PackedMatrix none = pack(row_major(static_cast<const void*>(&value), DType::f32, 0, 5));
  CHECK(none.bytes() == 0);
}

TEST_CASE("NaN, infinities and overflow go where they belong") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const int64_t k = 20, n = 18;
  auto a = values<float>(4 * k, 18), b = values<float>(n * k, 19);
  a[0] = nan;
  a[static_cast<size_t>(k)] = inf;
  for (int64_t j = 0; j < n; ++j) b[static_cast<size_t>(j * k)] = 0.5f;
  std::fill(a.begin() + 2 * k, a.begin() + 3 * k, 3000.0f);
  std::vector<fp16> c(static_cast<size_t>(4 * n));
  auto large = b;
  for (float& x : large) x = 3.0f;
  MatmulArgs args{.a = row_major(static_cast<const void*>(a.data()), DType::f32, 4, k),
                  .b = row_major(static_cast<const void*>(b.data()), DType::f32, n, k),
                  .c = row_major(static_cast<void*>(c.data()), DType::f16, 4, n)};
  cpu::matmul(args);
  for (int64_t j = 0; j < n; ++j) {
    CHECK(std::isnan(real(c[static_cast<size_t>(j)])));
    CHECK(real(c[static_cast<size_t>(n + j)]) == inf);
    CHECK(std::isfinite(real(c[static_cast<size_t>(3 * n + j)])));
  }
  args.b.data = large.data();
  cpu::matmul(args);
  CHECK(real(c[static_cast<size_t>(2 * n)]) == inf);  // 180000 overflows fp16
  std::vector<bf16> d(static_cast<size_t>(4 * n));
  args.c = row_major(static_cast<void*>(d.data()), DType::bf16, 4, n);
  cpu::matmul(args);
  CHECK(std::isnan(real(d[0])));
  CHECK(real(d[static_cast<size_t>(2 * n)]) == real(bf16(180000.0f)));
}

}  // namespace motley::kernels
