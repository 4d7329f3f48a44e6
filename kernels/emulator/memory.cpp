#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/device_memory.h"
#include "kernels/emulator/graph.h"
#include "kernels/emulator/guarded.h"
#include "kernels/graph_memory.h"

namespace motley::kernels {
namespace {

using emulator::GuardedBytes;
using Buffers = std::map<const void*, std::unique_ptr<GuardedBytes>>;

/// Released memory stays for a while, retired, so that touching it is seen: at most so many bytes of it.
constexpr size_t kKeptRetired = size_t{1} << 18;

std::string size_of(const GuardedBytes& buffer) { return "of " + std::to_string(buffer.size()) + " bytes"; }

class Memory {
 public:
  static Memory& instance() {
    static Memory memory;
    return memory;
  }

  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    MemoryUse use = this->use();
    if (bytes > use.free) throw std::runtime_error(out_of_memory("emulated", bytes, use));
    in_use_ += bytes;
    most_ = std::max(most_, in_use_);
    return fresh(buffers_, bytes);
  }
  void release(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(data);
    if (found == buffers_.end()) return refuse_release(data);
    std::unique_ptr<GuardedBytes> buffer = std::move(found->second);
    buffers_.erase(found);
    in_use_ -= buffer->size();
    retire(std::move(buffer));
  }
  void* allocate_pinned(size_t bytes) {
    const std::lock_guard lock(mutex_);
    return fresh(pinned_, bytes);
  }
  void release_pinned(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(data);
    if (found == pinned_.end()) {
      if (data != nullptr) tell("release of pinned memory that is not allocated");
      return;
    }
    std::unique_ptr<GuardedBytes> buffer = std::move(found->second);
    pinned_.erase(found);
    retire(std::move(buffer));
  }
  emulator::Holder holder_of(const void* address) {
    const std::lock_guard lock(mutex_);
    for (const Buffers* buffers : {&buffers_, &pinned_}) {
      auto found = buffers->upper_bound(address);
      if (found == buffers->begin()) continue;
      --found;
      const auto* const begin = static_cast<const unsigned char*>(found->first);
      if (static_cast<const unsigned char*>(address) <= begin + found->second->size())
        return {begin, found->second->number()};
    }
    return {};
  }
  bool is_pinned(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto found = pinned_.upper_bound(data);
    if (found == pinned_.begin()) return false;
    --found;
    const auto* const begin = static_cast<const unsigned char*>(found->first);
    return static_cast<const unsigned char*>(data) + bytes <= begin + found->second->size();
  }
  void trim() {
    const std::lock_guard lock(mutex_);
    while (!retired_.empty()) drop_oldest();
  }
  MemoryUse use_of_all() {
    const std::lock_guard lock(mutex_);
    return use();
  }
  void set_total(size_t bytes) {
    const std::lock_guard lock(mutex_);
    total_ = bytes;
  }
  void tell_later(const std::string& fault) {
    const std::lock_guard lock(mutex_);
    tell(fault);
  }
  void throw_faults() {
    const std::lock_guard lock(mutex_);
    for (const auto& [data, buffer] : buffers_) check(*buffer);
    for (const auto& [data, buffer] : pinned_) check(*buffer);
    for (const auto& buffer : retired_) check(*buffer);
    if (!fault_.empty()) throw emulator::Fault(std::exchange(fault_, {}));
  }

 private:
  void* fresh(Buffers& buffers, size_t bytes) {
    auto buffer = std::make_unique<GuardedBytes>(bytes, ++buffers_so_far_);
    void* const data = buffer->data();
    std::memset(data, 0xff, bytes);
    buffers.emplace(data, std::move(buffer));
    return data;
  }
  MemoryUse use() const { return {in_use_, in_use_, most_, total_ > in_use_ ? total_ - in_use_ : 0, total_}; }
  void tell(const std::string& fault) {
    if (fault_.empty()) fault_ = "emulated memory: " + fault;
  }
  void check(GuardedBytes& buffer) {
    if (buffer.intact()) return;
    tell(buffer.retired() ? "a store to a buffer " + size_of(buffer) + " after its release"
                          : "a store outside a buffer " + size_of(buffer));
  }
  /// A copy that is under way to or from it finds what is not its own, or is told of.
  void retire(std::unique_ptr<GuardedBytes> buffer) {
    check(*buffer);
    buffer->retire();
    retired_bytes_ += buffer->size();
    retired_.push_back(std::move(buffer));
    while (retired_bytes_ > kKeptRetired) drop_oldest();
  }
  void refuse_release(const void* data) {
    if (data == nullptr) return;
    const auto retired =
        std::find_if(retired_.begin(), retired_.end(), [&](const auto& buffer) { return buffer->data() == data; });
    tell(retired == retired_.end() ? "release of memory that is not allocated"
                                   : "a buffer " + size_of(**retired) + " was released twice");
  }
  void drop_oldest() {
    check(*retired_.front());
    retired_bytes_ -= retired_.front()->size();
    retired_.pop_front();
  }

  std::mutex mutex_;
  Buffers buffers_, pinned_;
  std::deque<std::unique_ptr<GuardedBytes>> retired_;
  size_t retired_bytes_ = 0, in_use_ = 0, most_ = 0, total_ = size_t{1} << 36;
  uint64_t buffers_so_far_ = 0;
  std::string fault_;
};

void copy_now(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

/// Memory of a graph is poisoned when it is given and when it is given back, at every launch.
void poison(void* memory, size_t bytes) {
  emulator::note_pointers(&memory, sizeof(memory));
  emulator::submit([=] { std::memset(memory, 0xff, bytes); });
}

}  // namespace

emulator::Holder emulator::holder_of(const void* address) { return Memory::instance().holder_of(address); }
void emulator::tell_later(const std::string& fault) noexcept { Memory::instance().tell_later(fault); }

namespace emulated {

void* allocate_at_once(size_t bytes) { return Memory::instance().allocate(bytes); }
void* allocate(size_t bytes) {
  GraphMemory* const graphs = GraphMemory::of_capture();
  if (graphs == nullptr) return allocate_at_once(bytes);
  void* const memory = graphs->allocate(bytes);
  poison(memory, bytes);
  return memory;
}
void release(void* memory) noexcept {
  if (GraphMemory* const graphs = GraphMemory::of_capture()) {
    if (const size_t bytes = graphs->release(memory); bytes > 0) poison(memory, bytes);
    return;
  }
  emulator::submit([memory] { Memory::instance().release(memory); });
}
int compute_capability() { return 90; }
MemoryUse memory_use() { return Memory::instance().use_of_all(); }
void trim() { Memory::instance().trim(); }
void set_total_memory(size_t bytes) { Memory::instance().set_total(bytes); }

void copy_in(void* to, const void* from, size_t bytes) {
  copy(to, from, bytes);
  finish_stream();
}
void copy_out(void* to, const void* from, size_t bytes) { copy_in(to, from, bytes); }
void copy(void* to, const void* from, size_t bytes) {
  emulator::note_pointers(&to, sizeof(to));
  emulator::note_pointers(&from, sizeof(from));
  emulator::submit([=] { copy_now(to, from, bytes); });
}
void clear(void* memory, size_t bytes) {
  emulator::note_pointers(&memory, sizeof(memory));
  emulator::submit([=] { std::memset(memory, 0, bytes); });
}
void copy_from_peer(void* to, const void* from, int, size_t bytes) { copy(to, from, bytes); }

void* allocate_pinned(size_t bytes) { return Memory::instance().allocate_pinned(bytes); }
void release_pinned(void* memory) noexcept { Memory::instance().release_pinned(memory); }

static void check_pinned(const void* memory, size_t bytes) {
  if (!Memory::instance().is_pinned(memory, bytes))
    throw emulator::Fault("emulated memory: an async copy of " + std::to_string(bytes) +
                          " bytes with host memory that is not pinned");
}
void copy_in_async(void* to, const void* pinned, size_t bytes) {
  check_pinned(pinned, bytes);
  copy(to, pinned, bytes);
}
void copy_out_async(void* pinned, const void* from, size_t bytes) {
  check_pinned(pinned, bytes);
  if (emulator::recording_of_thread() != nullptr)
    poison(pinned, bytes);
  else
    std::memset(pinned, 0xff, bytes);
  copy(pinned, from, bytes);
}

void check_buffers() { Memory::instance().throw_faults(); }
void synchronize() {
  emulator::finish_all();
  check_buffers();
}

}  // namespace emulated
}  // namespace motley::kernels
