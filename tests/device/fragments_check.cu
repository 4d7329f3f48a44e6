// Fragments on a GPU: ldmatrix, cp.async and every mma of kernels/cuda/fragments.h against plain sums of small
// integers, which are exact; then, for information, how many sums of random operands have the bits of the emulator's
// model. `make device-check` runs it where there is a GPU.
#include <cstdio>
#include <vector>

#include "kernels/cuda/fragments.h"
#include "kernels/emulator/matrix_unit.h"

using namespace motley::kernels;
using namespace motley::kernels::cuda;

namespace {

/// in [32, 8] rows of 16-bit elements, brought by asynchronous copies: out[lane][i] as ldmatrix places them, plain and
/// turned.
__global__ void load_kernel(const uint16_t* in, uint32_t* out) {
  __shared__ __align__(16) uint16_t rows[32 * 8];
  const int lane = static_cast<int>(threadIdx.x);
  copy_async(rows + 8 * lane, in + 8 * lane);
  commit_copies();
  wait_for_copies<0>();
  barrier();
  uint32_t plain[4], turned[4];
  load_fragments<false>(plain, rows + 8 * lane);
  load_fragments<true>(turned, rows + 8 * lane);
  for (int i = 0; i < 4; ++i) {
    out[lane * 8 + i] = plain[i];
    out[lane * 8 + 4 + i] = turned[i];
  }
}

/// a [16, K], b [8, K] as codes, c [16, 8]: fragments filled by the layout of kernels/cuda/fragments.h.
template <Operand O>
__global__ void mma_kernel(const uint32_t* a, const uint32_t* b, float* c) {
  constexpr int kEach = kPerRegister<O>, kDepth = kFragmentDepth<O>, kBits = 32 / kEach;
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  uint32_t x[4] = {}, y[2] = {};
  float sums[4];
  for (int j = 0; j < 4; ++j)
    for (int e = 0; e < kEach; ++e)
      x[j] |= a[(g + j % 2 * 8) * kDepth + t * kEach + e + 4 * kEach * (j / 2)] << e * kBits;
  for (int j = 0; j < 2; ++j)
    for (int e = 0; e < kEach; ++e) y[j] |= b[g * kDepth + t * kEach + e + 4 * kEach * j] << e * kBits;
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  multiply_fragments<O>(sums, x, y);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

bool failed(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return false;
  std::fprintf(stderr, "fragments_check: %s: %s\n", what, cudaGetErrorString(status));
  return true;
}
/// Runs kernel(inputs..., inout) by one warp; false when the device said no.
template <class T, class Run>
bool run_on_device(std::vector<const std::vector<T>*> inputs, void* inout, size_t bytes, const Run& run) {
  std::vector<T*> memory(inputs.size());
  void* out = nullptr;
  bool bad = failed(cudaMalloc(&out, bytes), "cudaMalloc");
  bad = bad || failed(cudaMemcpy(out, inout, bytes, cudaMemcpyHostToDevice), "copy");
  for (size_t i = 0; i < inputs.size() && !bad; ++i) {
    const size_t size = inputs[i]->size() * sizeof(T);
    bad = failed(cudaMalloc(&memory[i], size), "cudaMalloc") ||
          failed(cudaMemcpy(memory[i], inputs[i]->data(), size, cudaMemcpyHostToDevice), "copy");
  }
  if (!bad) run(memory, out);
  bad = bad || failed(cudaDeviceSynchronize(), "kernel") ||
        failed(cudaMemcpy(inout, out, bytes, cudaMemcpyDeviceToHost), "copy back");
  for (T* each : memory) cudaFree(each);
  cudaFree(out);
  return !bad;
}

bool check_loads() {
  std::vector<uint16_t> in(32 * 8);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i * 257 + 3);
  std::vector<uint32_t> out(32 * 8);
  if (!run_on_device<uint16_t>({&in}, out.data(), out.size() * 4, [](const auto& memory, void* to) {
        load_kernel<<<1, 32>>>(memory[0], static_cast<uint32_t*>(to));
      }))
    return false;
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const auto at = [&](int r, int c) { return uint32_t{in[static_cast<size_t>((8 * i + r) * 8 + c)]}; };
      wrong += out[static_cast<size_t>(lane * 8 + i)] != (at(g, 2 * t) | at(g, 2 * t + 1) << 16);
      wrong += out[static_cast<size_t>(lane * 8 + 4 + i)] != (at(2 * t, g) | at(2 * t + 1, g) << 16);
    }
  }
  std::printf("%-10s %s\n", "ldmatrix", wrong == 0 ? "as documented" : "WRONG");
  return wrong == 0;
}

template <Operand O>
uint32_t code_of(float value) {
  if constexpr (O == Operand::bf16) return encode<Format::bf16>(value);
  if constexpr (O == Operand::fp16) return encode<Format::fp16>(value);
  if constexpr (O == Operand::e4m3) return encode<Format::e4m3>(value);
  if constexpr (O == Operand::e5m2) return encode<Format::e5m2>(value);
  return std::bit_cast<uint32_t>(value) & 0xffffe000u;
}
template <Operand O>
float value_of(uint32_t code) {
  if constexpr (O == Operand::bf16) return decode<Format::bf16>(code);
  if constexpr (O == Operand::fp16) return decode<Format::fp16>(code);
  if constexpr (O == Operand::e4m3) return decode<Format::e4m3>(code);
  if constexpr (O == Operand::e5m2) return decode<Format::e5m2>(code);
  return std::bit_cast<float>(code);
}

uint32_t state = 1;
/// Uniform in [-1, 1).
float random_value() {
  state = state * 1664525u + 1013904223u;
  return static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
}

template <Operand O>
bool check_mma(const char* name, emulator::UnitWidth width) {
  constexpr int kDepth = kFragmentDepth<O>;
  int wrong = 0, modelled = 0;
  for (const bool integers : {true, false}) {
    const auto draw = [&] {
      return integers ? static_cast<float>(static_cast<int>(random_value() * 4)) : random_value();
    };
    std::vector<uint32_t> a(16 * kDepth), b(8 * kDepth);
    std::vector<float> c(16 * 8);
    for (uint32_t& x : a) x = code_of<O>(draw());
    for (uint32_t& x : b) x = code_of<O>(draw());
    for (float& x : c) x = draw();
    std::vector<float> got = c;
    if (!run_on_device<uint32_t>({&a, &b}, got.data(), got.size() * 4, [](const auto& memory, void* to) {
          mma_kernel<O><<<1, 32>>>(memory[0], memory[1], static_cast<float*>(to));
        }))
      return false;
    for (int i = 0; i < 16 * 8; ++i) {
      float row[kDepth], col[kDepth];
      double sum = c[static_cast<size_t>(i)];
      for (int k = 0; k < kDepth; ++k) {
        row[k] = value_of<O>(a[static_cast<size_t>(i / 8 * kDepth + k)]);
        col[k] = value_of<O>(b[static_cast<size_t>(i % 8 * kDepth + k)]);
        sum += static_cast<double>(row[k]) * col[k];
      }
      const float model = emulator::unit_sum(row, col, kDepth, c[static_cast<size_t>(i)], width);
      if (integers)
        wrong += got[static_cast<size_t>(i)] != static_cast<float>(sum);
      else
        modelled += got[static_cast<size_t>(i)] == model;
    }
  }
  std::printf("%-10s %s, %d of 128 sums as modelled\n", name, wrong == 0 ? "as documented" : "WRONG", modelled);
  return wrong == 0;
}

}  // namespace

int main() {
  cudaDeviceProp device;
  if (failed(cudaGetDeviceProperties(&device, 0), "no CUDA device that can be used")) return 1;
  bool good = check_loads();
  good = check_mma<Operand::bf16>("bf16", emulator::kWideUnit) && good;
  good = check_mma<Operand::fp16>("fp16", emulator::kWideUnit) && good;
  good = check_mma<Operand::tf32>("tf32", emulator::kWideUnit) && good;
  if (device.major * 10 + device.minor >= 89) {
    good = check_mma<Operand::e4m3>("e4m3", emulator::kFp8Unit) && good;
    good = check_mma<Operand::e5m2>("e5m2", emulator::kFp8Unit) && good;
  }
  return good ? 0 : 1;
}
