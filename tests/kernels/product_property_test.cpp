// Products: a row's bits never depend on its neighbours.
#include "kernels/quantized_linear.h"
#include "tests/kernels/packed_cases.h"
#include "tests/kernels/property.h"

namespace motley::kernels {
namespace {

constexpr int64_t kPool = 9;  // different rows of a case

/// Rows, outputs and inputs: mostly small; one case in four is worth several threads, blocks and slabs.
struct Sizes {
  int64_t batch, outputs, inputs;
  explicit Sizes(Values& draw) {
    const bool large = chance(draw, 4);
    batch = large ? spread(draw, 8, 160) : spread(draw, 1, 40);
    outputs = large ? spread(draw, 64, 500) : spread(draw, 1, 70);
    inputs = large ? spread(draw, 200, 2300) : spread(draw, 1, 300);
  }
};

std::vector<Quantization> kinds(bool activations) {
  std::vector<Quantization> all;
  for (const Format f : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2, Format::e2m1})
    all.push_back({f, Scaling::none});
  for (const Format f : {Format::e4m3, Format::e5m2, Format::e2m1}) {
    for (const Scaling s : {Scaling::tensor, Scaling::channel, Scaling::block1x128, Scaling::mx32})
      all.push_back({f, s});
    if (!activations) all.push_back({f, Scaling::block128x128});
  }
  all.push_back({Format::e2m1, Scaling::nv16, false});
  all.push_back({Format::e2m1, Scaling::nv16, true});
  return all;
}

/// A preset, or any pair of formats that a profile may have.
NumericProfile random_profile(Values& draw) {
  if (chance(draw, 2)) return pick(draw, profiles());
  NumericProfile profile;
  profile.name = "custom";
  profile.weight = pick(draw, kinds(false));
  profile.activation = pick(draw, kinds(true));
  profile.output = pick(draw, std::vector<DType>{DType::f32, DType::bf16, DType::f16});
  profile.k_tile = pick(draw, std::vector<int64_t>{0, 0, 16, 32, 64, 128, 200});
  const auto fp8 = [](const Quantization& how) {
    return (how.format == Format::e4m3 || how.format == Format::e5m2) && how.scaling != Scaling::mx32;
  };
  if (fp8(profile.weight) && fp8(profile.activation) && profile.k_tile % 32 == 0 && chance(draw, 2))
    profile.accumulation = Accumulation::hopper_fp8;
  return profile;
}

template <class T>
void check_linear(Values& draw, const NumericProfile& profile, const Sizes& sizes) {
  auto weights = values<float>(sizes.outputs * sizes.inputs, static_cast<uint64_t>(draw.below(1 << 30)));
  if (chance(draw, 4)) weights[static_cast<size_t>(draw.below(sizes.outputs * sizes.inputs))] = 1e30f;
  const QuantizedLinear linear(weights, sizes.outputs, sizes.inputs, profile);
  const auto x = random_rows<T>(draw, kPool, sizes.inputs);
  const auto gate = random_rows<T>(draw, kPool, sizes.outputs), residual = random_rows<T>(draw, kPool, sizes.outputs);
  const bool gated = chance(draw, 2), added = chance(draw, 2), in_place = chance(draw, 2);
  QuantizedRows quantized;  // kept: what earlier batches left in it must not matter
  check_rows(draw, kPool, sizes.batch, [&](std::span<const int64_t> rows) {
    const std::vector<T> inputs = gathered(x, rows), gates = gathered(gate, rows);
    std::vector<T> add = gathered(residual, rows), out(add.size());
    LinearEpilogue epilogue;
    if (gated) epilogue.gate = gates.data();
    if (added) epilogue.residual = add.data();
    std::vector<T>& y = added && in_place ? add : out;
    quantized.assign(inputs.data(), static_cast<int64_t>(rows.size()), sizes.inputs, profile);
    linear.forward(quantized, y.data(), epilogue);
    RowResults results(rows.size());
    add_results(results, y);
    return results;
  });
}

/// One operand in memory, its rows or its columns contiguous, rows with room between them.
template <class T>
struct Operand {
  std::vector<T> memory;
  int64_t row_stride, col_stride;
  Operand(const std::vector<T>& rows, int64_t count, int64_t cols, bool by_columns)
      : row_stride(by_columns ? 1 : cols + 3), col_stride(by_columns ? count + 2 : 1) {
    memory.resize(static_cast<size_t>(by_columns ? cols * col_stride : count * row_stride), as<T>(NAN));
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < cols; ++c) at(r, c) = rows[static_cast<size_t>(r * cols + c)];
  }
  T& at(int64_t r, int64_t c) { return memory[static_cast<size_t>(r * row_stride + c * col_stride)]; }
};

/// cpu::matmul with everything that it can be asked for; A and C of types A and C.
template <class A, class B, class C>
void check_matmul(Values& draw, const Sizes& sizes) {
  constexpr bool kDouble = std::is_same_v<C, double>;
  const int64_t n = sizes.outputs, k = sizes.inputs;
  const bool packs = !kDouble && chance(draw, 2), a_columns = chance(draw, 3), b_columns = chance(draw, 3);
  const bool c_columns = chance(draw, 3), scales = !kDouble && chance(draw, 4);
  const bool accumulates = (kDouble || std::is_same_v<C, float>)&&chance(draw, 2);
  const bool finishes = !kDouble && !accumulates && chance(draw, 2);
  Operand<B> b(values<B>(n * k, static_cast<uint64_t>(draw.below(1 << 30))), n, k, b_columns);
  const ConstMatrix view{b.memory.data(), dtype_of<B>(), n, k, b.row_stride, b.col_stride};
  PackedMatrix packed;
  if constexpr (!kDouble) packed = pack(view);
  const auto a_rows = random_rows<A>(draw, kPool, k);
  const auto c_rows = random_rows<C>(draw, kPool, n), residual = random_rows<C>(draw, kPool, n);
  const auto factors = random_rows<float>(draw, kPool, 1), a_scales = random_rows<float>(draw, kPool, (k + 127) / 128);
  const auto column_factors = values<float>(n, 1), b_scales = values<float>((n + 4) / 5 * ((k + 127) / 128), 2);
  const auto tile = pick(draw, std::vector<int64_t>{0, 0, 1, 16, 100, 128});
  check_rows(draw, kPool, sizes.batch, [&](std::span<const int64_t> rows) {
    const auto m = static_cast<int64_t>(rows.size());
    const Operand<A> a(gathered(a_rows, rows), m, k, a_columns);
    Operand<C> c(gathered(c_rows, rows), m, n, c_columns);
    const auto row_factors = gathered(factors, rows), row_scales = gathered(a_scales, rows);
    const auto add = gathered(residual, rows);
    MatmulArgs args{.a = {a.memory.data(), dtype_of<A>(), m, k, a.row_stride, a.col_stride}, .b = view};
    args.c = {c.memory.data(), dtype_of<C>(), m, n, c.row_stride, c.col_stride};
    args.accumulate = accumulates;
    args.k_tile = scales ? 128 : tile;
    if (packs) args.packed = &packed;
    if (scales) args.a_scales = row_scales.data(), args.b_scales = b_scales.data(), args.b_scale_rows = 5;
    if (finishes) {
      args.alpha = 0.75f;
      args.row_factors = row_factors.data();
      args.column_factors = column_factors.data();
      args.residual = row_major(static_cast<const void*>(add.data()), dtype_of<C>(), m, n);
    }
    cpu::matmul(args);
    RowResults results(rows.size());
    for (int64_t r = 0; r < m; ++r)
      for (int64_t j = 0; j < n; ++j) results[static_cast<size_t>(r)].push_back(real(c.at(r, j)));
    return results;
  });
}

}  // namespace

TEST_CASE("a row of a quantized layer never depends on its neighbours", "[property]") {
  for_random_cases(60, [](Values& draw) {
    const NumericProfile profile = random_profile(draw);
    Sizes sizes(draw);
    // The model of Hopper's accumulation works product by product.
    if (profile.accumulation == Accumulation::hopper_fp8) sizes.outputs = std::min<int64_t>(sizes.outputs, 40);
    INFO(describe(profile) << ", " << sizes.outputs << " x " << sizes.inputs);
    if (profile.output == DType::f32) check_linear<float>(draw, profile, sizes);
    if (profile.output == DType::bf16) check_linear<bf16>(draw, profile, sizes);
    if (profile.output == DType::f16) check_linear<fp16>(draw, profile, sizes);
  });
}

TEST_CASE("a row of a product of any types and layouts never depends on its neighbours", "[property]") {
  for_random_cases(40, [](Values& draw) {
    const Sizes sizes(draw);
    const int64_t types = draw.below(6);
    INFO("types " << types << ", " << sizes.outputs << " x " << sizes.inputs);
    if (types == 0) check_matmul<float, float, float>(draw, sizes);
    if (types == 1) check_matmul<bf16, bf16, bf16>(draw, sizes);
    if (types == 2) check_matmul<bf16, bf16, float>(draw, sizes);
    if (types == 3) check_matmul<fp16, fp16, fp16>(draw, sizes);
    if (types == 4) check_matmul<float, bf16, fp16>(draw, sizes);
    if (types == 5) check_matmul<double, double, double>(draw, sizes);
  });
}

}  // namespace motley::kernels
