// The fused finish of a product against the separate kernels, bit for bit.
#include "kernels/cpu/matmul_finish.h"

#include <catch2/catch.hpp>
#include <limits>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/pointwise.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Values with one special in every row of C, so that NaN, infinities and zeros of both signs meet all steps.
template <class T>
std::vector<T> with_specials(int64_t rows, int64_t cols, uint64_t seed, int64_t shift) {
  const float specials[] = {-0.0f,  0.0f,   kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                            200.0f, -200.0f};
  auto out = values<T>(rows * cols, seed, 3.0);
  for (int64_t r = 0; r < rows; ++r)
    out[static_cast<size_t>(r * cols + (r * 5 + shift) % cols)] = as<T>(specials[(r + shift) % 7]);
  return out;
}

/// Equal bits; for NaN the payload depends on the order of operands that the compiler chose.
template <class T>
bool agree(const std::vector<T>& a, const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(real(a[i])) && std::isnan(real(b[i]))) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return false;
  }
  return a.size() == b.size();
}

struct Case {
  int64_t m, n, k;
  bool scales, gate, residual;
};

/// The finish in separate steps over sums that a plain product left in fp32.
template <class T>
std::vector<T> separately(const Case& s, const MatmulArgs& fused, std::vector<float> sums) {
  const int64_t count = s.m * s.n;
  std::vector<T> out(static_cast<size_t>(count));
  for (int64_t r = 0; r < s.m; ++r) {
    for (int64_t c = 0; c < s.n; ++c) {
      float v = sums[static_cast<size_t>(r * s.n + c)] * fused.alpha;
      if (s.scales) v = v * fused.column_factors[c] * fused.row_factors[r];
      out[static_cast<size_t>(r * s.n + c)] = static_cast<T>(v);
    }
  }
  if (s.gate) cpu::silu_mul<T>({out.data(), static_cast<const T*>(fused.gate.data), out.data(), count});
  if (s.residual) cpu::add<T>(out.data(), static_cast<const T*>(fused.residual.data), out.data(), count);
  return out;
}

template <class T>
void check_finish(const Case& s, bool packed_weights) {
  const auto a = values<T>(s.m * s.k, 1);
  auto b = values<T>(s.n * s.k, 2);
  if (s.n > 3 && s.k > 0) b[static_cast<size_t>(3 * s.k)] = as<T>(kInfinity);
  const auto columns = values<float>(s.n, 3), rows = values<float>(s.m, 4);
  const auto gate = with_specials<T>(s.m, s.n, 6, 0);
  const auto residual = with_specials<T>(s.m, s.n, 7, 2);
  std::vector<float> sums(static_cast<size_t>(s.m * s.n));
  MatmulArgs args;
  args.a = row_major(static_cast<const void*>(a.data()), dtype_of<T>(), s.m, s.k);
  args.b = row_major(static_cast<const void*>(b.data()), dtype_of<T>(), s.n, s.k);
  const PackedMatrix packed = pack(args.b);
  if (packed_weights) args.packed = &packed;
  args.c = row_major(static_cast<void*>(sums.data()), DType::f32, s.m, s.n);
  cpu::matmul(args);

  args.alpha = 0.75f;
  if (s.scales) args.column_factors = columns.data();
  if (s.scales) args.row_factors = rows.data();
  if (s.gate) args.gate = row_major(static_cast<const void*>(gate.data()), dtype_of<T>(), s.m, s.n);
  if (s.residual) args.residual = row_major(static_cast<const void*>(residual.data()), dtype_of<T>(), s.m, s.n);
  const auto want = separately<T>(s, args, sums);
  std::vector<T> c(static_cast<size_t>(s.m * s.n));
  args.c = row_major(static_cast<void*>(c.data()), dtype_of<T>(), s.m, s.n);
  cpu::matmul(args);
  INFO(s.m << " x " << s.n << " x " << s.k << " packed " << packed_weights << " steps " << s.scales << s.gate
           << s.residual);
  CHECK(agree(c, want));
  if (s.residual) {  // in place
    std::vector<T> both = residual;
    args.c.data = both.data();
    args.residual.data = both.data();
    cpu::matmul(args);
    CHECK(agree(both, want));
  }
}

}  // namespace

TEST_CASE(
    "the fused finish has the bits of the separate kernels, on every "
    "instruction set") {
  const int sets = cpu::instruction_sets();
  for (int set = 0; set < sets; ++set) {
    cpu::use_instruction_set(set);
    for (const bool packed : {false, true}) {
      for (int steps = 0; steps < 8; ++steps) {
        const bool scales = (steps & 1) != 0, gate = (steps & 2) != 0, add = (steps & 4) != 0;
        for (const Case& s : {Case{1, 5, 3, scales, gate, add}, Case{9, 70, 40, scales, gate, add},
                              Case{41, 53, 300, scales, gate, add}, Case{3, 67, 0, scales, gate, add}}) {
          check_finish<float>(s, packed);
          check_finish<bf16>(s, packed);
          check_finish<fp16>(s, packed);
        }
      }
    }
  }
  cpu::use_best_instruction_set();
}

TEST_CASE("float sums that go straight to C, or to a residual in its place, have the bits of the separate kernels") {
  const int sets = cpu::instruction_sets();
  for (int set = 0; set < sets; ++set) {
    cpu::use_instruction_set(set);
    for (const int64_t k : {5, 300, 1100}) {  // one block of products, and several
      for (const bool columns : {false, true}) {
        const int64_t m = 29, n = 64;
        const auto a = values<float>(m * k, 1), b = values<float>(n * k, 2), residual = values<float>(m * n, 3);
        std::vector<float> sums(static_cast<size_t>(m * n)), c(sums), in_place = residual;
        MatmulArgs args;
        args.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k);
        args.b = row_major(static_cast<const void*>(b.data()), DType::f32, n, k);
        if (columns) args.a = {a.data(), DType::f32, m, k, 1, m};
        if (columns) args.b = {b.data(), DType::f32, n, k, 1, n};
        args.c = row_major(static_cast<void*>(sums.data()), DType::f32, m, n);
        cpu::matmul(args);
        for (const bool own : {false, true}) {
          std::vector<float>& out = own ? in_place : c;
          args.c.data = out.data();
          args.residual = row_major(static_cast<const void*>(own ? out.data() : residual.data()), DType::f32, m, n);
          cpu::matmul(args);
          bool equal = true;
          for (size_t i = 0; i < out.size(); ++i) equal = equal && out[i] == residual[i] + sums[i];
          INFO("K " << k << ", columns " << columns << ", in place " << own);
          CHECK(equal);
        }
      }
    }
  }
  cpu::use_best_instruction_set();
}

TEST_CASE("the finish reads operands and writes C with any strides") {
  const int64_t m = 5, n = 21, k = 17;
  const auto a = values<float>(m * k, 1), b = values<float>(n * k, 2);
  const auto gate = values<bf16>(2 * m * n, 3), residual = values<bf16>(m * n, 4);
  MatmulArgs args;
  args.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, k);
  args.b = row_major(static_cast<const void*>(b.data()), DType::f32, n, k);
  args.gate = {gate.data() + n, DType::bf16, m, n, 2 * n, 1};
  args.residual = transposed(row_major(static_cast<const void*>(residual.data()), DType::bf16, n, m));
  std::vector<bf16> transposed_c(static_cast<size_t>(m * n)), plain(static_cast<size_t>(m * n));
  args.c = {transposed_c.data(), DType::bf16, m, n, 1, m};
  cpu::matmul(args);
  std::vector<bf16> dense_gate, dense_residual;
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      dense_gate.push_back(gate[static_cast<size_t>(n + r * 2 * n + c)]);
      dense_residual.push_back(residual[static_cast<size_t>(c * m + r)]);
    }
  }
  args.gate = row_major(static_cast<const void*>(dense_gate.data()), DType::bf16, m, n);
  args.residual = row_major(static_cast<const void*>(dense_residual.data()), DType::bf16, m, n);
  args.c = row_major(static_cast<void*>(plain.data()), DType::bf16, m, n);
  cpu::matmul(args);
  bool equal = true;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c)
      equal = equal && transposed_c[static_cast<size_t>(c * m + r)].bits == plain[static_cast<size_t>(r * n + c)].bits;
  CHECK(equal);
}

}  // namespace motley::kernels
