#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/device_memory.h"
#include "kernels/emulator/emulator.h"
#include "kernels/emulator/guarded.h"

namespace motley::kernels::emulated {
namespace {

struct Memory {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<emulator::GuardedBytes>> buffers;
  std::string overrun;  // what a released buffer met, told by the next synchronize
};
Memory& memory() {
  static Memory instance;
  return instance;
}
std::string overrun_of(const emulator::GuardedBytes& buffer) {
  return "emulated memory: a store outside a buffer of " + std::to_string(buffer.size()) + " bytes";
}

}  // namespace

void* allocate(size_t bytes) {
  auto buffer = std::make_unique<emulator::GuardedBytes>(bytes);
  void* const data = buffer->data();
  std::memset(data, 0xff, bytes);
  const std::lock_guard lock(memory().mutex);
  memory().buffers.emplace(data, std::move(buffer));
  return data;
}

void release(void* data) noexcept {
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().buffers.find(data);
  if (found == memory().buffers.end()) return;
  if (!found->second->intact() && memory().overrun.empty()) memory().overrun = overrun_of(*found->second);
  memory().buffers.erase(found);
}

void copy_in(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
void copy_out(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
void copy(void* to, const void* from, size_t bytes) { copy_in(to, from, bytes); }
void clear(void* data, size_t bytes) { std::memset(data, 0, bytes); }

void synchronize() {
  const std::lock_guard lock(memory().mutex);
  std::string overrun = std::exchange(memory().overrun, {});
  for (const auto& [data, buffer] : memory().buffers)
    if (!buffer->intact() && overrun.empty()) overrun = overrun_of(*buffer);
  if (!overrun.empty()) throw emulator::Fault(overrun);
}

}  // namespace motley::kernels::emulated
