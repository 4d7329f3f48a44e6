// What goes wrong with memory and streams shows on the emulated device.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/device_stream.h"
#include "kernels/pointwise.h"

namespace motley::kernels {
namespace {

using Catch::Contains;
using emulator::Fault;

const Device kEmulated{DeviceKind::emulated, 0};

/// Four floats on the device, and as many of the host's that a copy may have.
struct Floats {
  float* there = static_cast<float*>(emulated::allocate(16));
  PinnedBytes pinned{kEmulated, 16};
  Floats() {
    for (int i = 0; i < 4; ++i) here()[i] = static_cast<float>(i + 1);
  }
  ~Floats() { emulated::release(there); }
  float* here() const { return static_cast<float*>(pinned.data()); }
};

GPU_KERNEL void half_a_barrier_kernel(int) {
  if (emulated::thread() < 7) emulated::barrier();
}

}  // namespace

TEST_CASE("a stream's work is done when it is waited for, and not before") {
  const Floats x;
  const Stream stream(kEmulated);
  {
    const StreamScope scope(stream);
    copy_in_async(kEmulated, x.there, x.pinned.data(), 16);
    CHECK(std::isnan(x.there[0]));
    finish_stream(kEmulated);
    CHECK(x.there[3] == 4.0f);
    emulated::add<float>(x.there, x.there, x.there, 4);
    CHECK(x.there[3] == 4.0f);
    copy_out_async(kEmulated, x.pinned.data(), x.there, 16);
    CHECK(std::isnan(x.here()[3]));
  }
  // Outside the scope work is the default stream's, which waits for nobody.
  emulated::add<float>(x.there, x.there, x.there, 4);
  CHECK(x.there[0] == 2.0f);
  emulated::synchronize();
  CHECK(x.there[0] == 4.0f);
  CHECK(x.here()[3] == 16.0f);
}

TEST_CASE("streams wait for each other by events alone") {
  for (const bool waits : {true, false}) {
    const Floats x;
    auto* const sum = static_cast<float*>(emulated::allocate(16));
    const Stream copying(kEmulated), adding(kEmulated);
    Event arrived(kEmulated), added(kEmulated);
    {
      const StreamScope scope(copying);
      copy_in_async(kEmulated, x.there, x.pinned.data(), 16);
      arrived.record();
    }
    {
      const StreamScope scope(adding);
      if (waits) arrived.await();
      emulated::add<float>(sum, x.there, x.there, 4);
      added.record();
    }
    added.finish();
    CHECK((sum[3] == 8.0f) == waits);
    CHECK(std::isnan(sum[3]) != waits);
    emulated::release(sum);
    emulated::synchronize();
  }
  const Event never(kEmulated);
  never.await();
  never.finish();
}

TEST_CASE("a copy that is not async waits for the thread's stream, and for no other") {
  const Floats x, y;
  const Stream stream(kEmulated), other(kEmulated);
  {
    const StreamScope scope(other);
    copy_in_async(kEmulated, y.there, y.pinned.data(), 16);
  }
  const StreamScope scope(stream);
  copy_in_async(kEmulated, x.there, x.pinned.data(), 16);
  emulated::add<float>(x.there, x.there, x.there, 4);
  float out[4];
  copy_bytes(out, {}, x.there, kEmulated, 16);
  CHECK(out[3] == 8.0f);
  CHECK(std::isnan(y.there[3]));
}

TEST_CASE("scopes of streams nest, and a destroyed stream's work is done") {
  const Floats x;
  {
    const Stream outer(kEmulated), inner(kEmulated);
    const StreamScope scope(outer);
    {
      const StreamScope nested(inner);
      CHECK(emulated::stream_in_use() != nullptr);
    }
    copy_in_async(kEmulated, x.there, x.pinned.data(), 16);
    CHECK(std::isnan(x.there[0]));
  }
  CHECK(emulated::stream_in_use() == nullptr);
  CHECK(x.there[0] == 1.0f);
}

TEST_CASE("what a kernel of a stream did wrong is told to who waits") {
  const Stream stream(kEmulated);
  const StreamScope scope(stream);
  emulated::launch({"half_a_barrier", 1, 32}, half_a_barrier_kernel, 0);
  CHECK_THROWS_WITH(finish_stream(kEmulated), Contains("half_a_barrier: block 0 of 1") && Contains("has returned"));
  CHECK_NOTHROW(finish_stream(kEmulated));
}

TEST_CASE("async copies need pinned memory") {
  const Floats x;
  float host[4] = {};
  const auto says = Contains("an async copy of 16 bytes with host memory that is not pinned");
  CHECK_THROWS_WITH(copy_in_async(kEmulated, x.there, host, 16), says);
  CHECK_THROWS_WITH(copy_out_async(kEmulated, host, x.there, 16), says);
  CHECK_THROWS_AS(copy_in_async(kEmulated, x.there, x.here() + 1, 16), Fault);
  CHECK_NOTHROW(copy_in_async(kEmulated, x.there, x.here() + 1, 12));
}

TEST_CASE("memory is seen when it is used after its release, released twice, or never allocated") {
  emulated::synchronize();
  auto* const x = static_cast<float*>(emulated::allocate(12));
  x[0] = 1.0f;
  emulated::release(x);
#if !defined(__SANITIZE_ADDRESS__)  // which stops the touch itself
  volatile float* const released = x;
  CHECK(released[0] != 1.0f);
  released[2] = 1.0f;
  CHECK_THROWS_WITH(emulated::synchronize(), "emulated memory: a store to a buffer of 12 bytes after its release");
  CHECK_NOTHROW(emulated::synchronize());
#endif
  emulated::release(x);
  CHECK_THROWS_WITH(emulated::synchronize(), "emulated memory: a buffer of 12 bytes was released twice");
  float local = 0;
  emulated::release(&local);
  CHECK_THROWS_WITH(emulated::synchronize(), "emulated memory: release of memory that is not allocated");
  emulated::release_pinned(&local);
  CHECK_THROWS_WITH(emulated::synchronize(), Contains("release of pinned memory that is not allocated"));
  emulated::release(nullptr);
  emulated::release_pinned(nullptr);
  CHECK_NOTHROW(emulated::synchronize());
}

TEST_CASE("memory that a stream still needs is released in its order") {
  const Stream stream(kEmulated);
  const Floats x;
  const StreamScope scope(stream);
  auto* const between = static_cast<float*>(emulated::allocate(16));
  copy_in_async(kEmulated, between, x.pinned.data(), 16);
  emulated::add<float>(x.there, between, between, 4);
  const size_t before = emulated::memory_use().in_use;
  emulated::release(between);
  CHECK(emulated::memory_use().in_use == before);
  finish_stream(kEmulated);
  CHECK(emulated::memory_use().in_use == before - 16);
  CHECK(x.there[3] == 8.0f);
  CHECK_NOTHROW(emulated::synchronize());
}

TEST_CASE("a device without enough memory says what was asked for, held and free") {
  const MemoryUse before = emulated::memory_use();
  emulated::set_total_memory(before.in_use + 1000);
  void* const some = emulated::allocate(600);
  CHECK(emulated::memory_use().in_use == before.in_use + 600);
  CHECK(emulated::memory_use().most >= before.in_use + 600);
  CHECK_THROWS_WITH(emulated::allocate(401), Contains("emulated: out of memory: 401 bytes asked for; ") &&
                                                 Contains(" in use, 0 more held by the pool, 400 free of "));
  void* const rest = emulated::allocate(400);
  emulated::release(some);
  emulated::release(rest);
  CHECK(emulated::memory_use().in_use == before.in_use);
  emulated::set_total_memory(before.total);
  CHECK(out_of_memory("cuda:1", 8, {5, 12, 9, 3, 20}) ==
        "cuda:1: out of memory: 8 bytes asked for; 5 in use, 7 more held by the pool, 3 free of 20");
}

TEST_CASE("streams and pinned memory of the CPU are its own") {
  const Device cpu{};
  const Stream stream(cpu);
  const StreamScope scope(stream);
  const PinnedBytes pinned(cpu, 4);
  const float one = 1.0f;
  float copy = 0.0f;
  std::memcpy(pinned.data(), &one, 4);
  copy_in_async(cpu, &copy, pinned.data(), 4);
  CHECK(copy == 1.0f);
  Event event(cpu);
  event.record();
  event.await();
  event.finish();
  finish_stream(cpu);
}

}  // namespace motley::kernels
