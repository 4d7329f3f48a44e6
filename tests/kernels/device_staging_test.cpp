// Uploads that nobody waits for, and downloads in one wait: the emulated device is as late as it may be, so that memory
// used again too early shows.
#include "kernels/device_staging.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"

namespace motley::kernels {
namespace {

const Device kEmulated{DeviceKind::emulated, 0};

std::vector<int32_t> ascending(size_t count, int32_t first) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}
std::vector<int32_t> read(const void* from, size_t count) {
  std::vector<int32_t> values(count);
  std::memcpy(values.data(), from, count * sizeof(int32_t));
  return values;
}

}  // namespace

TEST_CASE("uploads through a ring do not wait until it has gone round, and what they copied stays") {
  constexpr size_t kValues = 4, kBytes = kValues * sizeof(int32_t);
  const Stream stream(kEmulated);
  const StreamScope scope(stream);
  PinnedRing ring(kEmulated, 64, 3);  // pieces are aligned to 64 bytes: one upload each
  std::vector<std::shared_ptr<void>> there;
  const uint64_t before = emulated::waits();
  for (int32_t i = 0; i < 3; ++i) {
    there.push_back(allocate_on(kEmulated, kBytes));
    std::vector<int32_t> values = ascending(kValues, 10 * i);
    ring.upload(there.back().get(), values.data(), kBytes);
    std::fill(values.begin(), values.end(), -7);  // the caller's again
  }
  CHECK(read(there[0].get(), 1) == std::vector<int32_t>{-1});  // not yet written to
  CHECK(emulated::waits() == before);
  for (int32_t i = 3; i < 8; ++i) {
    there.push_back(allocate_on(kEmulated, kBytes));
    ring.upload(there.back().get(), ascending(kValues, 10 * i).data(), kBytes);
  }
  finish_stream(kEmulated);
  for (int32_t i = 0; i < 8; ++i)
    CHECK(read(there[static_cast<size_t>(i)].get(), kValues) == ascending(kValues, 10 * i));
}

TEST_CASE("pinned memory that is used again without a wait is seen: the device reads what came later") {
  const Stream stream(kEmulated);
  const StreamScope scope(stream);
  const PinnedBytes pinned(kEmulated, 4);
  const auto first = allocate_on(kEmulated, 4), second = allocate_on(kEmulated, 4);
  for (const bool waits : {true, false}) {
    const int32_t values[] = {1, 2};
    std::memcpy(pinned.data(), &values[0], 4);
    copy_in_async(kEmulated, first.get(), pinned.data(), 4);
    if (waits) finish_stream(kEmulated);
    std::memcpy(pinned.data(), &values[1], 4);
    copy_in_async(kEmulated, second.get(), pinned.data(), 4);
    finish_stream(kEmulated);
    CHECK((read(first.get(), 1) == std::vector<int32_t>{1}) == waits);
  }
}

TEST_CASE("copies of every size around a ring's pieces arrive, both ways") {
  for (const size_t count : {1, 15, 16, 17, 31, 32, 33, 48, 100, 257}) {
    INFO(count);
    const Stream stream(kEmulated);
    const StreamScope scope(stream);
    PinnedRing ring(kEmulated, 64, 2);
    const auto values = ascending(count, 1);
    const auto there = allocate_on(kEmulated, count * sizeof(int32_t));
    std::vector<int32_t> back(count);
    ring.upload(there.get(), values.data(), count * sizeof(int32_t));
    ring.download(back.data(), there.get(), count * sizeof(int32_t));
    CHECK(back == values);
    ring.upload(there.get(), ascending(count, 5).data(), count * sizeof(int32_t));
    ring.download(back.data(), there.get(), count * sizeof(int32_t));
    CHECK(back == ascending(count, 5));
  }
}

TEST_CASE("a large array goes through this thread's ring, whichever stream it uses") {
  const auto values = ascending(20000, 3);  // more than one piece
  const size_t bytes = values.size() * sizeof(int32_t);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(std::make_unique<Stream>(kEmulated));  // more than there are rings
  for (int round = 0; round < 2; ++round) {
    for (const auto& stream : streams) {
      const StreamScope scope(*stream);
      const auto there = copied_to(kEmulated, values.data(), values.size());
      std::vector<int32_t> back(values.size());
      copy_bytes(back.data(), {}, there.get(), kEmulated, bytes);
      CHECK(back == values);
    }
  }
  // A thread's ring ends with it, and nothing of it is lost.
  const Stream stream(kEmulated);
  const auto there = allocate_on(kEmulated, bytes);
  std::thread([&] {
    const StreamScope scope(stream);
    upload(kEmulated, there.get(), values.data(), bytes);
  }).join();
  const StreamScope scope(stream);
  finish_stream(kEmulated);
  CHECK(read(there.get(), values.size()) == values);
  CHECK_NOTHROW(emulated::synchronize());
}

TEST_CASE("downloads wait once for all their arrays") {
  const Stream stream(kEmulated);
  const StreamScope scope(stream);
  const auto values = ascending(40, 0);
  const auto there = copied_to(kEmulated, values.data(), values.size());
  Downloads downloads(kEmulated);
  for (int round = 0; round < 2; ++round) {
    downloads.clear();
    const size_t head = downloads.add(there.get(), 4), none = downloads.add(nullptr, 0),
                 tail = downloads.add(there.get() + 7, 33 * sizeof(int32_t));
    const uint64_t before = emulated::waits();
    downloads.finish();
    CHECK(emulated::waits() == before + 1);
    CHECK(*downloads.at<int32_t>(head) == 0);
    CHECK(none == 1);
    CHECK(read(downloads.at<int32_t>(tail), 33) == ascending(33, 7));
  }
  downloads.clear();
  const uint64_t before = emulated::waits();
  downloads.finish();
  CHECK(emulated::waits() == before);
}

}  // namespace motley::kernels
