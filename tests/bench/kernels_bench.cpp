// Times of the CPU kernels on the shapes of experiments/quickstart.toml, one thread.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/attention.h"
#include "kernels/head.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"

using namespace motley::kernels;

namespace {

template <class T>
std::vector<T> values(int64_t count) {
  std::vector<T> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = T(0.01f * static_cast<float>(i % 101 - 50));
  return out;
}

/// Arguments: rows, outputs, inputs.
template <class T>
void matmul(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto a = values<T>(m * k), b = values<T>(n * k);
  std::vector<T> c(static_cast<size_t>(m * n));
  MatmulArgs args;
  args.a = row_major(a.data(), dtype_of<T>(), m, k);
  args.b = row_major(b.data(), dtype_of<T>(), n, k);
  args.c = row_major(c.data(), dtype_of<T>(), m, n);
  for (auto _ : state) cpu::matmul(args);
  state.counters["GFLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * n * k) / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(matmul<float>)->Args({512, 512, 512})->Args({64, 128, 128})->Args({256, 352, 128});
BENCHMARK(matmul<bf16>)->Args({170, 128, 128})->Args({170, 352, 128})->Args({3000, 352, 128})->Args({3000, 128, 352});

/// dW += dY^T X: both operands transposed, rows of tokens reduced. Arguments: outputs, inputs, tokens.
void weight_gradient(benchmark::State& state) {
  const int64_t n = state.range(0), k = state.range(1), tokens = state.range(2);
  const auto dy = values<bf16>(tokens * n), x = values<bf16>(tokens * k);
  std::vector<float> dw(static_cast<size_t>(n * k));
  MatmulArgs args;
  args.a = transposed(row_major(dy.data(), DType::bf16, tokens, n));
  args.b = transposed(row_major(x.data(), DType::bf16, tokens, k));
  args.c = row_major(dw.data(), DType::f32, n, k);
  args.accumulate = true;
  for (auto _ : state) cpu::matmul(args);
  state.counters["GFLOP/s"] = benchmark::Counter(2.0 * static_cast<double>(tokens * n * k) / 1e9,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(weight_gradient)->Args({352, 128, 3000});

void attention_forward(benchmark::State& state) {
  constexpr int64_t kSequences = 256, kLength = 12, kHeads = 4, kKvHeads = 2, kHeadDim = 32,
                    kRows = kSequences * kLength;
  const auto q = values<bf16>(kRows * kHeads * kHeadDim), k = values<bf16>(kRows * kKvHeads * kHeadDim);
  std::vector<bf16> y(q.size());
  std::vector<float> lse(kRows * kHeads);
  std::vector<int32_t> starts;
  for (int64_t s = 0; s <= kSequences; ++s) starts.push_back(static_cast<int32_t>(s * kLength));
  const AttentionArgs<bf16> args{y.data(),   lse.data(), q.data(), k.data(), k.data(),           starts.data(),
                                 kSequences, kHeads,     kKvHeads, kHeadDim, 0.17677669529663687};
  for (auto _ : state) cpu::attention(args);
}
BENCHMARK(attention_forward);

void norm_forward(benchmark::State& state) {
  const auto x = values<bf16>(3000 * 128), gain = values<bf16>(128);
  std::vector<bf16> y(x.size());
  std::vector<float> rstd(3000);
  for (auto _ : state) cpu::rms_norm<bf16>({y.data(), rstd.data(), x.data(), gain.data(), 3000, 128, 1e-6});
}
BENCHMARK(norm_forward);

void silu_mul_forward(benchmark::State& state) {
  const auto x = values<bf16>(3000 * 352);
  std::vector<bf16> y(x.size());
  for (auto _ : state) cpu::silu_mul<bf16>({y.data(), x.data(), x.data(), 3000 * 352});
}
BENCHMARK(silu_mul_forward);

}  // namespace
