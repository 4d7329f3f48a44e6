// Captured work on the emulated device: the same bits at every launch, and a Fault for what a GPU would refuse or,
// worse, would not.
#include "kernels/device_graph.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/device_staging.h"
#include "kernels/emulator/emulator.h"
#include "kernels/pointwise.h"

namespace motley::kernels {
namespace {

using Catch::Contains;

const Device kEmulated{DeviceKind::emulated, 0};
constexpr int64_t kCount = 5;
constexpr size_t kBytes = kCount * sizeof(float);

/// A stream in use, and x of the device with pinned values for it.
struct Fixture {
  Stream stream{kEmulated};
  StreamScope scope{stream};
  GraphMemory memory{kEmulated};
  std::shared_ptr<void> x = allocate_on(kEmulated, kBytes), y = allocate_on(kEmulated, kBytes);
  PinnedBytes pinned{kEmulated, kBytes};
  float* at(const std::shared_ptr<void>& memory_of) const { return static_cast<float*>(memory_of.get()); }
  void set(float value) const {
    for (int64_t i = 0; i < kCount; ++i) static_cast<float*>(pinned.data())[i] = value + static_cast<float>(i);
  }
  /// y = 4 x, by way of memory of its own.
  void quadruple() const {
    copy_in_async(kEmulated, x.get(), pinned.data(), kBytes);
    const auto doubled = allocate_on(kEmulated, kBytes);
    emulated::add<float>(at(doubled), at(x), at(x), kCount);
    emulated::add<float>(at(y), at(doubled), at(doubled), kCount);
  }
  std::vector<float> result() const {
    std::vector<float> values(kCount);
    copy_bytes(values.data(), {}, y.get(), kEmulated, kBytes);
    return values;
  }
};

std::vector<float> quadruple_of(float value) {
  std::vector<float> values;
  for (int64_t i = 0; i < kCount; ++i) values.push_back(4.0f * (value + static_cast<float>(i)));
  return values;
}

}  // namespace

TEST_CASE("a graph does its work at every launch, with what is then in its memory, and not when it is captured") {
  Fixture on;
  emulated::clear(on.y.get(), kBytes);
  const Graph graph(kEmulated, on.memory, [&] { on.quadruple(); });
  CHECK(on.result() == std::vector<float>(kCount, 0.0f));
  for (const float value : {1.0f, -3.0f}) {
    on.set(value);
    graph.launch();
    CHECK(on.result() == quadruple_of(value));
  }
}

TEST_CASE("graphs share memory, which none of them finds as it left it") {
  Fixture on;
  on.set(1.0f);
  const size_t before = emulated::memory_use().in_use;
  float* captured = nullptr;
  const Graph first(kEmulated, on.memory, [&] { on.quadruple(); });
  CHECK(on.memory.held() == kBytes);
  const Graph second(kEmulated, on.memory, [&] {
    const auto one = allocate_on(kEmulated, kBytes), two = allocate_on(kEmulated, 8);
    captured = on.at(one);
    emulated::add<float>(on.at(on.y), on.at(one), on.at(one), kCount);  // nothing was put there
  });
  CHECK(on.memory.held() == kBytes + 8);
  CHECK(emulated::memory_use().in_use == before + kBytes + 8);
  first.launch();
  CHECK(on.result() == quadruple_of(1.0f));
  second.launch();
  for (const float value : on.result()) CHECK(std::isnan(value));
  CHECK(std::isnan(*captured));
  first.launch();
  CHECK(on.result() == quadruple_of(1.0f));
}

TEST_CASE("a launch whose memory was released is seen") {
  Fixture on;
  std::optional<GraphMemory> memory(std::in_place, kEmulated);
  const Graph graph(kEmulated, *memory, [&] { on.quadruple(); });
  graph.launch();
  CHECK_NOTHROW(finish_stream(kEmulated));
  SECTION("its own") { memory.reset(); }
  SECTION("what a kernel is told of") { on.y.reset(); }
  SECTION("what is copied to, though another is there now") {
    const void* const place = on.x.get();
    on.x.reset();
    finish_stream(kEmulated);
    on.x = allocate_on(kEmulated, kBytes);
    INFO((on.x.get() == place ? "the same place" : "another place"));
  }
  graph.launch();
  CHECK_THROWS_WITH(finish_stream(kEmulated), "emulated graph: launched after a buffer that it uses was released");
}

TEST_CASE("what cannot be captured is refused, and the stream goes on") {
  Fixture on;
  on.set(2.0f);
  float host = 0;
  Event event(kEmulated);
  const auto refused = [&](const std::function<void()>& work, const char* reason) {
    CHECK_THROWS_WITH(Graph(kEmulated, on.memory, work), Contains(reason));
    on.quadruple();
    CHECK(on.result() == quadruple_of(2.0f));
  };
  refused([&] { finish_stream(kEmulated); }, "the host waits while a graph is captured");
  refused([&] { emulated::synchronize(); }, "the host waits while a graph is captured");
  refused([&] { event.finish(); }, "the host waits while a graph is captured");
  refused([&] { event.record(); }, "an event is recorded while a graph is captured");
  refused([&] { event.await(); }, "it waits for an event while a graph is captured");
  refused([&] { copy_bytes(&host, {}, on.x.get(), kEmulated, 4); }, "not pinned is copied while a graph is captured");
  refused([&] { copy_bytes(on.x.get(), kEmulated, &host, {}, 4); }, "not pinned is copied while a graph is captured");
  refused([&] { Graph(kEmulated, on.memory, [] {}); }, "a capture begins while a graph is captured");
  std::shared_ptr<void> kept;
  refused([&] { kept = allocate_on(kEmulated, 12); }, "12 bytes outlive the work that is captured");
  kept.reset();
  refused([&] { throw std::runtime_error("its own reason"); }, "its own reason");
  CHECK_NOTHROW(emulated::synchronize());
}

TEST_CASE("memory from before a capture that it releases is released after it") {
  Fixture on;
  auto before = allocate_on(kEmulated, 24);
  finish_stream(kEmulated);
  const size_t in_use = emulated::memory_use().in_use;
  const Graph graph(kEmulated, on.memory, [&] { before.reset(); });
  finish_stream(kEmulated);
  CHECK(emulated::memory_use().in_use == in_use - 24);
  graph.launch();
  CHECK_NOTHROW(finish_stream(kEmulated));
}

TEST_CASE("the default stream and the CPU have no graphs") {
  GraphMemory memory(kEmulated);
  CHECK_THROWS_WITH(Graph(kEmulated, memory, [] {}), "emulated stream: the default one cannot be captured");
  GraphMemory of_cpu{Device{}};
  CHECK_THROWS_WITH(Graph(Device{}, of_cpu, [] {}), "graph: the CPU has none");
}

}  // namespace motley::kernels
