// The conversions of kernels/formats.h compiled for the device, against the same source compiled for the host: bit for bit
// over every bf16 pattern and a sweep of floats. `make device-check` runs it where there is a GPU.
#include <cstdio>
#include <cstring>
#include <vector>

#include "kernels/formats.h"
#include "kernels/philox.h"

using namespace motley::kernels;

namespace {

struct Codes {
  uint32_t bf16_code, fp16_code, e4m3_code, e5m2_code, e2m1_code, bf16_back, fp16_back, e4m3_back, e5m2_back, e2m1_back;
  uint32_t words[4];
};

MOTLEY_HD Codes convert_all(float value, uint32_t position) {
  Codes c{};
  c.bf16_code = bf16_from_float(value);
  c.fp16_code = fp16_from_float(value);
  c.e4m3_code = e4m3_from_float(value);
  c.e5m2_code = e5m2_from_float(value);
  c.e2m1_code = e2m1_from_float(value);
  c.bf16_back = std::bit_cast<uint32_t>(bf16_to_float(c.bf16_code));
  c.fp16_back = std::bit_cast<uint32_t>(fp16_to_float(c.fp16_code));
  c.e4m3_back = std::bit_cast<uint32_t>(e4m3_to_float(c.e4m3_code));
  c.e5m2_back = std::bit_cast<uint32_t>(e5m2_to_float(c.e5m2_code));
  c.e2m1_back = std::bit_cast<uint32_t>(e2m1_to_float(c.e2m1_code));
  const auto words = random_words({1, Purpose::train, 2, 3}, position);
  for (int i = 0; i < 4; ++i) c.words[i] = words[i];
  return c;
}

__global__ void convert_kernel(const float* values, Codes* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = convert_all(values[i], static_cast<uint32_t>(i));
}

bool ok(cudaError_t status, const char* what) {
  if (status != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  return status == cudaSuccess;
}

}  // namespace

int main() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000u; ++high)
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  const int count = static_cast<int>(values.size());
  float* device_values = nullptr;
  Codes* device_codes = nullptr;
  std::vector<Codes> codes(values.size());
  if (!ok(cudaMalloc(&device_values, values.size() * sizeof(float)), "cudaMalloc") ||
      !ok(cudaMalloc(&device_codes, codes.size() * sizeof(Codes)), "cudaMalloc") ||
      !ok(cudaMemcpy(device_values, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), "copy"))
    return 1;
  convert_kernel<<<(count + 255) / 256, 256>>>(device_values, device_codes, count);
  if (!ok(cudaMemcpy(codes.data(), device_codes, codes.size() * sizeof(Codes), cudaMemcpyDeviceToHost), "kernel")) return 1;
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    const Codes host = convert_all(values[i], static_cast<uint32_t>(i));
    if (std::memcmp(&host, &codes[i], sizeof(Codes)) != 0 && ++failed <= 5)
      std::fprintf(stderr, "value %a differs between device and host\n", values[i]);
  }
  std::printf("%d passed, %d failed\n", count - failed, failed);
  return failed == 0 ? 0 : 1;
}
