// cuDNN's attention without a GPU: the graphs of kernels/cuda/attention_graph.cpp are compiled for devices that are
// described to it, with the toolkit's stub in place of the driver. A graph passes when cuDNN has an engine for it and
// has compiled the kernel: what fails then is loading it. Prints a line per device and shape; exit 1 when one is
// refused.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/cuda/attention_graph.h"
#include "kernels/vendor.h"

using namespace motley::kernels;
using namespace motley::kernels::cuda::cudnn;

namespace {

/// As cuDNN writes the properties of a device down; those of an H200, with another compute capability.
Descriptor device_of(int capability) {
  const std::string text =
      R"({"deviceName":"described","cudaDeviceId":0,"deviceVer":)" + std::to_string(capability * 10) +
      R"(,"driverVer":13000,"multiProcessorCount":132,"maxGridSize":[2147483647,65535,65535],)"
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"maxRegistersPerSM":65536,"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
      R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"smClockRateKHz":1980000,)"
      R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("totalGlobalMem":150000000000})";
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()),
                 text.data());
  device.finalize();
  return device;
}

/// Empty: it compiles.
std::string refusal(const Descriptor& device, const AttentionShape& shape, bool backward) {
  try {
    AttentionGraph made = backward ? backward_graph(shape) : forward_graph(shape);
    made.graph.compile({nullptr, &device});
  } catch (const Refusal& why) {
    if (std::strstr(why.what(), "cuLibraryLoadData") == nullptr) return why.what();
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fputs("vendor_graphs: give the toolkit's stub of the driver, as in lib64/stubs/libcuda.so\n", stderr);
    return 2;
  }
  std::printf("%s\n", library().c_str());
  int refused = 0;
  for (const int capability : {90, 100, 103}) {
    const Descriptor device = device_of(capability);
    const struct {
      int64_t heads, kv_heads, head_dim;
      cudnnDataType_t type;
    } kinds[] = {{16, 8, 128, CUDNN_DATA_BFLOAT16}, {4, 4, 32, CUDNN_DATA_BFLOAT16}, {14, 2, 64, CUDNN_DATA_HALF}};
    for (const auto& kind : kinds) {
      for (const bool backward : {false, true}) {
        const AttentionShape shape{vendor_attention_sequences(5),
                                   vendor_attention_length(700),
                                   kind.heads,
                                   kind.kv_heads,
                                   kind.head_dim,
                                   kind.type,
                                   0.125f};
        const std::string why = refusal(device, shape, backward);
        std::printf("%d.%d  heads %2lld/%lld of %3lld  %-8s  %s\n", capability / 10, capability % 10,
                    static_cast<long long>(kind.heads), static_cast<long long>(kind.kv_heads),
                    static_cast<long long>(kind.head_dim), backward ? "backward" : "forward",
                    why.empty() ? "compiles" : why.c_str());
        refused += why.empty() ? 0 : 1;
      }
    }
  }
  return refused == 0 ? 0 : 1;
}
