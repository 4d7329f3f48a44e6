// Times the products of a GPU: decoding rows and a prompt's, by weights of every kind, on both kernels. Prints a table:
// time of a product, TFLOP/s, and the weights' bytes per second, which for few rows is what bounds it. The weights are
// larger than a second-level cache, but for four bits.
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/matmul.h"
#include "kernels/packed_device.h"
#include "kernels/parallel.h"
#include "kernels/quantize.h"
#include "tests/kernels/values.h"

using namespace motley::kernels;

namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int64_t kOutputs = 16384, kInputs = 8192;

/// Seconds of one call: the mean over a fifth of a second, after a warm-up.
double seconds_of(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&](int count) {
    cuda::synchronize();
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) call();
    cuda::synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  timed(2);
  const double one = timed(3) / 3;
  const int count = one > 0.1 ? 2 : static_cast<int>(0.2 / one) + 1;
  return timed(count) / count;
}

struct Row {
  int64_t rows;
  const char* weights;
  bool chain;  // timed too: it takes seconds for a prompt
};

void measure(const Row& row, const PackedOnDevice& weights, double weight_bytes) {
  const auto x = copied_to(kGpu, values<bf16>(row.rows * kInputs, 1).data(), static_cast<size_t>(row.rows * kInputs));
  const auto y = allocate_on(kGpu, static_cast<size_t>(row.rows * kOutputs) * sizeof(bf16));
  MatmulArgs args;
  args.a = row_major(static_cast<const void*>(x.get()), DType::bf16, row.rows, kInputs);
  args.packed_codes = weights.view;
  args.c = row_major(y.get(), DType::bf16, row.rows, kOutputs);
  const auto print = [&](const char* kernel, double seconds) {
    const double operations = 2.0 * static_cast<double>(row.rows) * kOutputs * kInputs;
    std::printf("%-14s %6lld %-8s %10.1f %10.1f %10.0f\n", kernel, static_cast<long long>(row.rows), row.weights,
                seconds * 1e6, operations / seconds * 1e-12, weight_bytes / seconds * 1e-9);
  };
  print("matmul_units", seconds_of([&] { cuda::matmul_units(args); }));
  if (row.rows >= 256 && cuda::compute_capability() == 90) {
    print("  mma.sync", seconds_of([&] { cuda::matmul_units(args, UnitTiling::wide); }));
    print("  wgmma", seconds_of([&] { cuda::matmul_units(args, UnitTiling::warpgroup); }));
  }
  if (row.chain) print("matmul", seconds_of([&] { cuda::matmul(args); }));
}

}  // namespace

int main() {
  if (cuda::device_count() == 0) {
    std::fputs("device_bench: no CUDA device that can be used\n", stderr);
    return 1;
  }
  cuda::use_device(0);
  set_compute_threads(8);
  const std::string refusal = cuda::warpgroup_refusal();
  std::printf("wgmma for wide products: %s\n", refusal.empty() ? "yes" : ("no: " + refusal).c_str());
  std::printf("y [rows, %lld] = x W^T over %lld inputs\n", static_cast<long long>(kOutputs),
              static_cast<long long>(kInputs));
  std::printf("%-14s %6s %-8s %10s %10s %10s\n", "kernel", "rows", "weights", "us", "TFLOP/s", "GB/s");
  const std::vector<float> weights = values<float>(kOutputs * kInputs, 2);
  const struct {
    const char* name;
    Quantization how;
  } kinds[] = {{"bf16", {Format::bf16, Scaling::none}},
               {"fp8", {Format::e4m3, Scaling::channel}},
               {"mxfp8", {Format::e4m3, Scaling::mx32}},
               {"nvfp4", {Format::e2m1, Scaling::nv16}}};
  for (const auto& kind : kinds) {
    const PackedMatrix packed = pack(quantize(weights, kOutputs, kInputs, kind.how));
    const PackedOnDevice on = copied_to(kGpu, packed);
    for (const int64_t rows : {1, 16, 64, 256, 4096})
      measure({rows, kind.name, rows <= 256}, on, static_cast<double>(packed.bytes()));
  }
  return 0;
}
