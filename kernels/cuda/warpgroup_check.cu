// Whether wide products may move to warpgroups unasked: a row must keep its bits, whatever its batch, and nobody
// documents how wgmma and mma.sync sum. So the first one that could asks the device, by a product whose sums round.
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/warpgroup.h"
#include "kernels/device_memory.h"
#include "kernels/graph_memory.h"
#include "kernels/matmul.h"
#include "kernels/philox.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int64_t kRows = 128, kDepth = 72;  // a block's tile, five steps

/// Numbers of 9 bits, exact in either type, over 16 binades.
template <class T>
std::vector<T> numbers(uint64_t seed) {
  std::vector<T> all;
  for (int64_t i = 0; i < kRows * kDepth; ++i) {
    const uint64_t word = mix(seed, static_cast<uint64_t>(i));
    const auto integer = static_cast<float>(static_cast<int>(word % 512) - 256);
    all.push_back(T(std::ldexp(integer, static_cast<int>(word >> 32 & 15u) - 8)));
  }
  return all;
}

/// How many sums of the two differ.
template <class T>
int differences() {
  const Scratch<T> a(kRows * kDepth), b(kRows * kDepth);
  const Scratch<float> c(kRows * kRows);
  copy_in(a.data(), numbers<T>(1).data(), kRows * kDepth * sizeof(T));
  copy_in(b.data(), numbers<T>(2).data(), kRows * kDepth * sizeof(T));
  const void *left = a.data(), *right = b.data();
  MatmulArgs args;
  args.a = row_major(left, dtype_of<T>(), kRows, kDepth);
  args.b = row_major(right, dtype_of<T>(), kRows, kDepth);
  args.c = row_major(static_cast<void*>(c.data()), DType::f32, kRows, kRows);
  std::vector<float> sums[2];
  for (const UnitTiling tiling : {UnitTiling::wide, UnitTiling::warpgroup}) {
    matmul_units(args, tiling);
    std::vector<float>& out = sums[tiling == UnitTiling::warpgroup];
    out.resize(kRows * kRows);
    copy_out(out.data(), c.data(), out.size() * sizeof(float));
  }
  int count = 0;
  for (size_t i = 0; i < sums[0].size(); ++i)
    count += std::bit_cast<uint32_t>(sums[0][i]) != std::bit_cast<uint32_t>(sums[1][i]);
  return count;
}

/// False in code that was compiled for sm_90 rather than sm_90a.
GPU_KERNEL void built_kernel(int32_t* built) { *built = kHasWarpgroups ? 1 : 0; }
bool is_built() {
  const Scratch<int32_t> flag(1);
  launch({"built", 1, kWarp}, built_kernel, flag.data());
  int32_t built = 0;
  copy_out(&built, flag.data(), sizeof(built));
  return built == 1;
}

#ifdef __CUDACC__
int device_in_use() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}
#else
/// An emulated device with other warpgroups is another one.
int device_in_use() { return 100 * emulator::warpgroup_unit.aligned + emulator::warpgroup_unit.result; }
#endif

std::string refusal_of_device() {
  if (compute_capability() != 90) return "there is none: it is of compute capability 9.0 alone";
  if (!is_built()) return "this build has none: it was compiled for sm_90, not sm_90a";
  const int bf16_sums = differences<bf16>(), fp16_sums = differences<fp16>();
  if (bf16_sums + fp16_sums == 0) return {};
  return std::to_string(bf16_sums) + " bf16 and " + std::to_string(fp16_sums) + " fp16 sums of " +
         std::to_string(kRows * kRows) + " have other bits than those of mma.sync";
}

}  // namespace

std::string warpgroup_refusal() {
  static std::mutex mutex;  // guards the map
  static std::map<int, std::string> refusals;
  const std::lock_guard lock(mutex);
  const auto found = refusals.find(device_in_use());
  if (found != refusals.end()) return found->second;
  if (GraphMemory::of_capture() != nullptr) return "not checked yet, which waits, and a captured graph may not";
  return refusals.emplace(device_in_use(), refusal_of_device()).first->second;
}

}  // namespace motley::kernels::GPU_NAMESPACE
