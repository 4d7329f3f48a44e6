// Runs device kernels on the host, one fiber per thread of a block, and is stricter than a device: it finds threads
// that miss a barrier or meet at different ones, lanes that meet at different operations of their warp, stores outside
// shared memory, and copies that nobody waits for; shared memory starts as NaN, and the order of blocks, warps and
// lanes is permuted by a seed, that of atomic operations with it. A result that changes with the seed shows a race or a
// missing barrier. Kernels reach it through kernels/cuda/gpu.h.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/emulator/shared_memory.h"

namespace motley::kernels::emulator {

#ifdef __cpp_lib_source_location
using Where = std::source_location;
#else  // Clang before 16 on libstdc++, as clang-tidy parses it
class Where {
 public:
  static constexpr Where current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return Where(file, line);
  }
  constexpr Where() = default;
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return 0; }

 private:
  constexpr Where(const char* file, unsigned line) : file_(file), line_(line) {}
  const char* file_ = "";
  unsigned line_ = 0;
};
#endif
inline constexpr size_t kSlotBytes = 32;  // of what a lane gives to its warp

/// What a kernel did wrong: kernel, block, thread, file and line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where the running thread of the kernel is.
struct Place {
  int64_t block = 0, blocks = 0;
  int thread = 0, threads = 0;
};
extern constinit thread_local Place place;

/// The seed of the order of blocks, warps and lanes for launches of this thread; 0: ascending.
void set_order(uint64_t seed);
/// Runs `body` as every thread of every block. Throws Fault, and what the body throws.
void run(const Launch& launch, const std::function<void()>& body);

/// Does a piece of work in the order of this thread's stream (kernels/device_memory.h): at once, or when the stream is
/// waited for.
void submit(std::function<void()> work);
/// Does what all streams were given.
void finish_all();
/// While a graph is captured: the buffers that these bytes hold addresses of are part of it.
void note_pointers(const void* bytes, size_t count);
/// A fault that nobody could be told when it happened: the next synchronize throws the first of them.
void tell_later(const std::string& fault) noexcept;

void barrier(const Where& where);
/// Gives `mine` to the warp and waits for its other lanes. Until this lane meets them twice more, given(lane) is what
/// that lane gave.
void meet(const void* mine, size_t bytes, const Where& where);
const void* given(int lane, const Where& where);

void* shared_bytes(const void* key, size_t bytes, Poison poison);
/// The launch's dynamic shared memory.
unsigned char* dynamic_shared();
/// Throws Fault unless [data, data + bytes) lies in shared memory and is aligned to `bytes`.
void check_shared(const void* data, size_t bytes, const Where& where);

/// Copies of this thread (kernels/emulator/async_copies.h). 4, 8 or 16 bytes, both sides aligned to their number.
void copy_async(void* to, const void* from, size_t bytes, size_t valid, const Where& where);
void commit_copies();
void wait_for_copies(int pending, const Where& where);

template <class T>
T* shared_array(const void* key, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr Poison kPoison = std::is_same_v<T, float>    ? Poison::f32
                             : std::is_same_v<T, double> ? Poison::f64
                                                         : Poison::other;
  return static_cast<T*>(shared_bytes(key, count * sizeof(T), kPoison));
}

}  // namespace motley::kernels::emulator
