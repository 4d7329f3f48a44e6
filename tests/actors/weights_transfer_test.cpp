// Weights from a server to its clients over ZeroMQ: what arrives is what was offered, whatever the way there.
#include "tests/actors/weight_transfer.h"

namespace motley::actors {

TEST_CASE("a client gets what was offered, bit for bit, for every profile", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 1000});
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    if (profile.output == DType::f64) continue;
    CAPTURE(profile.name);
    const auto sent = transfer_weights(3, profile.name);
    server.offer(profile.name, sent);
    Receiver receiver(context, client_options(server, profile.name));
    const auto received = receiver.await(3);
    REQUIRE(received);
    CHECK(received->fingerprints() == sent->fingerprints());
    CHECK(image_of(*received) == image_of(*sent));
  }
  CHECK(server.stats().refused_frames == 0);
}

TEST_CASE("chunks of every size, in full and as deltas, give the same weights", "[weights]") {
  zmq::context_t context;
  const size_t bytes = image_of(*moved_weights(0)).size();
  // Every size up to 40, then some around what divides the image, and beyond it.
  std::vector<uint64_t> sizes;
  for (uint64_t size = 1; size <= 40; ++size) sizes.push_back(size);
  for (const uint64_t size : {bytes / 3, bytes / 2, bytes / 2 + 1, bytes - 1, bytes, bytes + 1}) sizes.push_back(size);
  const auto versions = {moved_weights(1), moved_weights(2), moved_weights(3), moved_weights(4)};
  for (const uint64_t size : sizes) {
    CAPTURE(size);
    WeightServer server(context, {.chunk_bytes = size});
    WeightClientOptions options = client_options(server);
    options.window = 64;
    Receiver receiver(context, options);
    for (const auto& sent : versions) {
      server.offer("bf16", sent);
      const auto received = receiver.await(sent->version());
      REQUIRE(received);
      CHECK(received->fingerprints() == sent->fingerprints());
      CHECK(image_of(*received) == image_of(*sent));
    }
    if (size >= 64) CHECK(receiver.stats().delta_chunks > 0);  // what is smaller does not always shrink
  }
}

TEST_CASE("a kind that nobody offered is waited for, and late subscribers hear of it", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {});
  Receiver early(context, client_options(server));
  Receiver other(context, client_options(server, "h100-fp8"));
  server.offer("bf16", transfer_weights(1));
  REQUIRE(early.await(1));
  Receiver late(context, client_options(server));
  REQUIRE(late.await(1));
  CHECK(eventually([&] { return server.stats().kinds["bf16"].subscribers == 2; }));
  CHECK(other.versions().empty());
  server.offer("h100-fp8", transfer_weights(1, "h100-fp8"));
  REQUIRE(other.await(1));
  CHECK(early.versions().size() == 1);
  CHECK(early.failures() + late.failures() + other.failures() == 0);
}

TEST_CASE("an offer is made once for a version, from however many threads", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 64});
  Receiver receiver(context, client_options(server));
  const auto last = transfer_weights(20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (uint64_t version = 1; version < 20; ++version) server.offer("bf16", transfer_weights(version));
      server.offer("bf16", last);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto received = receiver.await(20);
  REQUIRE(received);
  CHECK(received->fingerprints() == last->fingerprints());
  const std::vector<uint64_t> versions = receiver.versions();
  CHECK(std::is_sorted(versions.begin(), versions.end()));
  CHECK(std::adjacent_find(versions.begin(), versions.end()) == versions.end());
  CHECK(receiver.stats().attempts_failed == 0);
}

}  // namespace motley::actors
