#include "kernels/device_memory.h"

namespace motley::kernels {

std::string out_of_memory(const std::string& device, size_t bytes, const MemoryUse& use) {
  return device + ": out of memory: " + std::to_string(bytes) + " bytes asked for; " + std::to_string(use.in_use) +
         " in use, " + std::to_string(use.held - use.in_use) + " more held by the pool, " + std::to_string(use.free) +
         " free of " + std::to_string(use.total);
}

}  // namespace motley::kernels
