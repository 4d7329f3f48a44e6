// Weights from a server to its clients over ZeroMQ: what arrives is what was offered, whatever the way there.
#include "actors/security/sockets.h"
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

TEST_CASE("clients that join and follow while versions are offered all end with the newest", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 256, .store = {.bases = 1, .leased = 1}});
  constexpr uint64_t kLast = 12;
  std::thread learner([&] {
    for (uint64_t version = 1; version <= kLast; ++version) server.offer("bf16", moved_weights(version));
  });
  std::vector<std::unique_ptr<Receiver>> receivers;
  for (int i = 0; i < 6; ++i) {
    WeightClientOptions options = client_options(server);
    options.window = static_cast<uint64_t>(1 + i);
    receivers.push_back(std::make_unique<Receiver>(context, options));
  }
  learner.join();
  const std::vector<std::byte> want = image_of(*moved_weights(kLast));
  for (const auto& receiver : receivers) {
    const auto received = receiver->await(kLast);
    REQUIRE(received);
    CHECK(image_of(*received) == want);
    CHECK(receiver->failures() == 0);
    const std::vector<uint64_t> versions = receiver->versions();
    CHECK(std::is_sorted(versions.begin(), versions.end()));
  }
}

TEST_CASE("a head of its own travels too", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 300});
  TransformerConfig config = transfer_model();
  config.tied_head = false;
  config.qk_norm = true;
  const auto sent = transfer_weights(2, "b200-nvfp4", config);
  server.offer("b200-nvfp4", sent);
  WeightClientOptions options = client_options(server, "b200-nvfp4");
  options.config = config;
  Receiver receiver(context, options);
  const auto received = receiver.await(2);
  REQUIRE(received);
  CHECK(received->fingerprints() == sent->fingerprints());
}

TEST_CASE("a server counts what it sends, in full and as deltas, and how long it took", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 500});
  const uint64_t bytes = image_of(*moved_weights(1)).size();
  server.offer("bf16", moved_weights(1));
  Receiver receiver(context, client_options(server));
  REQUIRE(receiver.await(1));
  REQUIRE(eventually([&] { return server.stats().kinds["bf16"].fetches == 1; }));
  const WeightKindStats first = server.stats().kinds["bf16"];
  CHECK(first.full_raw_bytes == bytes);
  CHECK(first.full_bytes <= bytes);
  CHECK(first.delta_raw_bytes == 0);
  CHECK(first.subscribers == 1);
  CHECK(first.seconds >= first.longest_seconds);
  CHECK(receiver.stats().bytes == first.full_bytes);
  CHECK(receiver.stats().raw_bytes == bytes);
  CHECK(receiver.stats().ready_seconds >= receiver.stats().fetch_seconds);
  for (uint64_t version = 2; version <= 5; ++version) {
    server.offer("bf16", moved_weights(version));
    REQUIRE(receiver.await(version));
  }
  REQUIRE(eventually([&] { return server.stats().kinds["bf16"].fetches == 5; }));
  const WeightKindStats last = server.stats().kinds["bf16"];
  CHECK(last.full_raw_bytes + last.delta_raw_bytes == 5 * bytes);
  CHECK(last.delta_raw_bytes >= 3 * bytes);
  CHECK(last.delta_bytes < last.delta_raw_bytes / 4);
  CHECK(last.memory.versions == 3);
  CHECK(last.memory.images == 3 * bytes);
  CHECK(last.memory.encoded > 0);
  CHECK(last.memory.encoded <= 2 * bytes);
}

TEST_CASE("with a key file weights go to those who hold it, and to nobody else", "[weights]") {
  zmq::context_t context;
  const Keys keys = make_keys(), others = make_keys();
  const Gatekeeper gatekeeper(context, keys);
  const auto sent = transfer_weights(1);
  WeightServer server(context, {.secure = [&](zmq::socket_t& socket) { secure_server(socket, gatekeeper); }});
  server.offer("bf16", sent);
  WeightClientOptions options = client_options(server);
  options.secure = [&](zmq::socket_t& socket) { secure_client(socket, keys); };
  Receiver member(context, options);
  const auto received = member.await(1);
  REQUIRE(received);
  CHECK(received->fingerprints() == sent->fingerprints());
  options.limits = short_limits();
  options.secure = nullptr;
  Receiver open(context, options);
  options.secure = [&](zmq::socket_t& socket) { secure_client(socket, others); };
  Receiver stranger(context, options);
  CHECK_THAT(open.await_failure(), Catch::Contains("no answer within"));
  CHECK_THAT(stranger.await_failure(), Catch::Contains("no answer within"));
  CHECK(open.versions().empty());
  CHECK(stranger.versions().empty());
}

TEST_CASE("without compression chunks are plain bytes", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 500, .zstd_level = 0});
  server.offer("bf16", moved_weights(1));
  Receiver receiver(context, client_options(server));
  REQUIRE(receiver.await(1));
  server.offer("bf16", moved_weights(2));
  REQUIRE(receiver.await(2));
  CHECK(receiver.stats().bytes == receiver.stats().raw_bytes);
  CHECK(receiver.stats().delta_chunks == 0);
}

}  // namespace motley::actors
