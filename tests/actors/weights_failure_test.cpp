// What goes wrong with weights on their way: a client is never handed what is not the sender's, never waits for ever,
// and says whom it waited for.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "tests/actors/weight_transfer.h"

namespace motley::actors {
namespace {

using std::chrono::milliseconds;

/// Answers as a server does, in full copies, but for what a test changes: the answer, its bytes, or that there is one.
class MeddlingServer {
 public:
  using Change = std::function<bool(const WeightRequest&, WeightAnswer&, std::vector<std::byte>&)>;
  MeddlingServer(zmq::context_t& context, StoredWeightsPtr weights, Change change)
      : weights_(std::move(weights)),
        change_(std::move(change)),
        router_(context, zmq::socket_type::router),
        publisher_(context, zmq::socket_type::xpub) {
    for (zmq::socket_t* socket : {&router_, &publisher_}) {
      socket->set(zmq::sockopt::linger, 0);
      socket->bind("tcp://127.0.0.1:*");
    }
    thread_ = std::thread([this] { run(); });
  }
  ~MeddlingServer() {
    wake_.signal();
    thread_.join();
  }
  std::string fetch() { return router_.get(zmq::sockopt::last_endpoint); }
  std::string announce() { return publisher_.get(zmq::sockopt::last_endpoint); }

 private:
  void run() {
    while (true) {
      zmq::pollitem_t items[] = {{nullptr, wake_.descriptor(), ZMQ_POLLIN, 0}, {router_.handle(), 0, ZMQ_POLLIN, 0}};
      zmq::poll(items, 2, milliseconds(-1));
      if (items[0].revents != 0) return;
      zmq::message_t peer, bytes;
      (void)router_.recv(peer);
      (void)router_.recv(bytes);
      const WeightRequest request = decode_request(bytes.to_string_view());
      if (request.ask != WeightAsk::done) answer(peer, request);
    }
  }
  void answer(zmq::message_t& peer, const WeightRequest& request) {
    WeightAnswer header{WeightReply::chunk, request.attempt, request.chunk, ChunkEncoding::raw, 0};
    std::span<const std::byte> content = std::as_bytes(std::span(weights_->packed_manifest));
    if (request.ask == WeightAsk::newest) {
      header.reply = WeightReply::manifest;
      header.hash = hash_of(content);
    } else {
      content = weights_->chunk(request.chunk);
    }
    std::vector<std::byte> out(content.begin(), content.end());
    if (!change_(request, header, out)) return;
    router_.send(peer, zmq::send_flags::sndmore);
    router_.send(zmq::message_t(encode(header)), zmq::send_flags::sndmore);
    router_.send(zmq::message_t(out.data(), out.size()), zmq::send_flags::none);
  }

  const StoredWeightsPtr weights_;
  const Change change_;
  zmq::socket_t router_, publisher_;
  WakeEvent wake_;
  std::thread thread_;
};

StoredWeightsPtr stored(uint64_t version, uint64_t chunk_bytes = 500) {
  return store_weights("bf16", *transfer_weights(version), chunk_bytes);
}

/// At the addresses of a server that is gone, once ZeroMQ has closed its sockets.
std::unique_ptr<WeightServer> restarted(zmq::context_t& context, const WeightServerOptions& options) {
  std::unique_ptr<WeightServer> server;
  REQUIRE(eventually([&] {
    try {
      server = std::make_unique<WeightServer>(context, options);
    } catch (const std::runtime_error&) {
      return false;
    }
    return true;
  }));
  return server;
}

/// What a client says in the end of a server that meddles so.
std::string failure(const MeddlingServer::Change& change, StoredWeightsPtr weights = stored(1)) {
  zmq::context_t context;
  MeddlingServer server(context, std::move(weights), change);
  WeightClientOptions options = client_options(server.fetch(), server.announce());
  options.limits = short_limits();
  Receiver receiver(context, options);
  const std::string text = receiver.await_failure();
  CHECK(receiver.versions().empty());
  CHECK(receiver.stats().attempts_failed == 2);
  CHECK_THAT(text, Catch::StartsWith("weights of kind \"bf16\" from " + server.fetch()) &&
                       Catch::EndsWith("; this was the last of 2 attempts"));
  return text;
}

}  // namespace

TEST_CASE("a chunk that is not what was sent never becomes weights", "[weights]") {
  const auto damaged = [](auto damage) {
    return failure([damage](const WeightRequest& request, WeightAnswer& header, std::vector<std::byte>& bytes) {
      if (request.ask == WeightAsk::chunk && request.chunk == 2) damage(header, bytes);
      return true;
    });
  };
  using Catch::Contains;
  CHECK_THAT(damaged([](WeightAnswer&, auto& bytes) { bytes[3] ^= std::byte{16}; }),
             Contains("version 1, chunk 2 of ") && Contains("its hash is not the manifest's"));
  CHECK_THAT(damaged([](WeightAnswer&, auto& bytes) { bytes.pop_back(); }), Contains("499 bytes instead of 500"));
  CHECK_THAT(damaged([](WeightAnswer&, auto& bytes) { bytes.clear(); }), Contains("0 bytes instead of 500"));
  CHECK_THAT(damaged([](WeightAnswer& header, auto&) { header.encoding = ChunkEncoding::zstd; }), Contains("zstd: "));
  CHECK_THAT(damaged([](WeightAnswer& header, auto&) { header.encoding = ChunkEncoding::zstd_xor; }),
             Contains("a delta without the version"));
  CHECK_THAT(damaged([](WeightAnswer& header, auto&) { header.chunk = 1000; }), Contains("was not asked for"));
  CHECK_THAT(damaged([](WeightAnswer& header, auto&) { header.reply = WeightReply::manifest; }),
             Contains("a manifest that was not asked for"));
}

TEST_CASE("a manifest that is not this model's, or not its own, never becomes weights", "[weights]") {
  const auto replaced = [](auto change) {
    auto weights = std::make_shared<StoredWeights>(*stored(1));
    change(weights->manifest);
    weights->packed_manifest = encode(weights->manifest);
    return failure([](auto&, auto&, auto&) { return true; }, weights);
  };
  using Catch::Contains;
  CHECK_THAT(replaced([](WeightManifest& m) { m.kind = "fp8"; }), Contains("of kind \"fp8\", not \"bf16\""));
  CHECK_THAT(replaced([](WeightManifest& m) { m.config += " "; }), Contains("the model is another one"));
  CHECK_THAT(replaced([](WeightManifest& m) { ++m.parts[4].fingerprint; }),
             Contains("version 1: the fingerprint of model.layers.0.self_attn.v_proj.weight is "));
  CHECK_THAT(replaced([](WeightManifest& m) { ++m.version.digest; }), Contains("the digest of the manifest"));
  CHECK_THAT(failure([](const WeightRequest&, WeightAnswer& header, auto&) {
               ++header.hash;
               return true;
             }),
             Contains("the manifest's hash is not what was sent"));
}

TEST_CASE("a server that falls silent is given up, by name, and the wait can be cut short", "[weights]") {
  const std::string text = failure([](const WeightRequest& request, auto&, auto&) { return request.chunk < 2; });
  CHECK_THAT(text, Catch::Contains("version 1, chunk 2 of ") && Catch::Contains("no answer within 0.15 s"));
  CHECK_THAT(failure([](auto&, auto&, auto&) { return false; }), Catch::Contains("no answer within 0.15 s"));
  zmq::context_t context;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Receiver nobody(context, client_options("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"));
    std::this_thread::sleep_for(milliseconds(20));
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
}

TEST_CASE("a whole fetch has a limit too, which trickling does not move", "[weights]") {
  zmq::context_t context;
  MeddlingServer server(context, stored(1, 16), [](auto&, auto&, auto&) {
    std::this_thread::sleep_for(milliseconds(20));
    return true;
  });
  WeightClientOptions options = client_options(server.fetch(), server.announce());
  options.limits = short_limits();
  options.limits.fetch = milliseconds(100);
  Receiver receiver(context, options);
  CHECK_THAT(receiver.await_failure(), Catch::Contains("not complete within 0.1 s"));
}

TEST_CASE("what was wrong once is fetched again, and only that", "[weights]") {
  zmq::context_t context;
  const StoredWeightsPtr weights = stored(1, 100);
  std::atomic<int> asked{0}, wrong{0};
  MeddlingServer server(context, weights, [&](const WeightRequest& request, auto&, std::vector<std::byte>& bytes) {
    if (request.ask != WeightAsk::chunk) return true;
    ++asked;
    if (request.chunk == 5 && wrong++ == 0) bytes[0] ^= std::byte{1};
    return true;
  });
  WeightClientOptions options = client_options(server.fetch(), server.announce());
  options.window = 1;
  options.limits = short_limits();
  Receiver receiver(context, options);
  REQUIRE(receiver.await(1));
  CHECK(static_cast<uint64_t>(asked) == weights->manifest.chunks() + 1);
  CHECK(receiver.stats().attempts_failed == 1);
  CHECK(receiver.failures() == 0);
}

TEST_CASE("after a delta that is wrong a full copy is asked for", "[weights]") {
  zmq::context_t context;
  const StoredWeightsPtr second = stored(2);
  std::atomic<bool> moved_on{false};
  std::atomic<int> deltas{0};
  MeddlingServer server(context, stored(1),
                        [&](const WeightRequest& request, WeightAnswer& header, std::vector<std::byte>& bytes) {
                          if (!moved_on) return true;
                          std::span<const std::byte> content = std::as_bytes(std::span(second->packed_manifest));
                          if (request.ask == WeightAsk::newest)
                            header.hash = hash_of(content);
                          else
                            content = second->chunk(request.chunk);
                          bytes.assign(content.begin(), content.end());
                          if (request.base != 0 && ++deltas > 0) bytes[0] ^= std::byte{1};
                          return true;
                        });
  WeightServer announcer(context, {});
  WeightClientOptions options = client_options(server.fetch(), announcer.announce_endpoint());
  options.limits = short_limits();
  Receiver receiver(context, options);
  REQUIRE(receiver.await(1));
  CHECK(deltas == 0);
  moved_on = true;
  announcer.offer("bf16", transfer_weights(2));
  REQUIRE(receiver.await(2));
  CHECK(deltas > 0);
  CHECK(receiver.stats().attempts_failed == 1);
}

TEST_CASE("a server that dies in mid-sync and comes back: the fetch goes on, others are not held up", "[weights]") {
  zmq::context_t context;
  const auto weights = transfer_weights(4);
  auto dying =
      std::make_unique<MeddlingServer>(context, store_weights("bf16", *weights, 100),
                                       [](const WeightRequest& request, auto&, auto&) { return request.chunk < 7; });
  WeightClientOptions options = client_options(dying->fetch(), dying->announce());
  options.window = 1;
  options.limits = short_limits();
  options.limits.attempts = 100;
  const std::string fetch = dying->fetch(), announce = dying->announce();
  Receiver receiver(context, options);
  REQUIRE(eventually([&] { return receiver.stats().full_chunks == 7; }));
  dying.reset();
  WeightServer other(context, {});
  other.offer("bf16", weights);
  Receiver unharmed(context, client_options(other));
  CHECK(unharmed.await(4));
  const auto back = restarted(context, {.fetch = fetch, .announce = announce, .chunk_bytes = 100});
  back->offer("bf16", weights);
  const auto received = receiver.await(4);
  REQUIRE(received);
  CHECK(received->fingerprints() == weights->fingerprints());
  CHECK(receiver.stats().full_chunks == store_weights("bf16", *weights, 100)->manifest.chunks());  // none twice
  CHECK(receiver.stats().attempts_failed >= 1);
  CHECK(receiver.failures() == 0);
}

TEST_CASE("a version that is gone while it is fetched gives way to the newest", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 100});
  const auto newest = transfer_weights(9);
  server.offer("bf16", newest);
  const StoredWeightsPtr old = stored(1, 100);
  // The manifest of an old version, and then what a server says that no longer has it.
  std::atomic<int> manifests{0};
  const StoredWeightsPtr stored_newest = store_weights("bf16", *newest, 100);
  MeddlingServer meddling(context, stored_newest,
                          [&](const WeightRequest& request, WeightAnswer& header, std::vector<std::byte>& bytes) {
                            if (request.ask == WeightAsk::newest && manifests++ == 0) {
                              const auto content = std::as_bytes(std::span(old->packed_manifest));
                              bytes.assign(content.begin(), content.end());
                              header.hash = hash_of(content);
                            }
                            if (request.ask == WeightAsk::chunk && request.version.number == 1)
                              header.reply = WeightReply::gone;
                            return true;
                          });
  Receiver receiver(context, client_options(meddling.fetch(), meddling.announce()));
  REQUIRE(receiver.await(9));
  CHECK(receiver.versions() == std::vector<uint64_t>{9});
  CHECK(receiver.stats().attempts_failed == 0);
}

TEST_CASE("whoever is slow gets the newest version, not those that it missed", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {.chunk_bytes = 500});
  std::atomic<bool> hold{true};
  std::atomic<uint64_t> seen{0};
  std::vector<uint64_t> versions;
  WeightClient client(
      context, client_options(server),
      [&](const std::shared_ptr<const SamplerWeights>& weights) {
        versions.push_back(weights->version());
        seen = weights->version();
        while (hold) std::this_thread::sleep_for(milliseconds(1));
      },
      [](const std::string&) {});
  server.offer("bf16", moved_weights(1));
  REQUIRE(eventually([&] { return seen == 1; }));
  for (uint64_t version = 2; version <= 9; ++version) server.offer("bf16", moved_weights(version));
  hold = false;
  REQUIRE(eventually([&] { return seen == 9; }));
  CHECK(versions == std::vector<uint64_t>{1, 9});
}

TEST_CASE("a server that starts anew with older weights is followed", "[weights]") {
  zmq::context_t context;
  auto server = std::make_unique<WeightServer>(context, WeightServerOptions{});
  const WeightClientOptions options = client_options(*server);
  server->offer("bf16", transfer_weights(8));
  Receiver receiver(context, options);
  REQUIRE(receiver.await(8));
  server.reset();
  server = restarted(context, {.fetch = options.fetch, .announce = options.announce});
  server->offer("bf16", transfer_weights(5));
  CHECK(receiver.await(5));
}

TEST_CASE("frames that are no requests are counted and harm nobody", "[weights]") {
  zmq::context_t context;
  WeightServer server(context, {});
  const auto sent = transfer_weights(1);
  server.offer("bf16", sent);
  zmq::socket_t stranger(context, zmq::socket_type::dealer);
  stranger.set(zmq::sockopt::linger, 0);
  stranger.connect(server.fetch_endpoint());
  const std::string good = encode(WeightRequest{.ask = WeightAsk::chunk, .kind = "bf16", .chunk = 1u << 30});
  stranger.send(zmq::message_t(), zmq::send_flags::none);
  stranger.send(zmq::buffer(std::string("\xff\xff\xff")), zmq::send_flags::none);
  stranger.send(zmq::buffer(good), zmq::send_flags::sndmore);
  stranger.send(zmq::buffer(good), zmq::send_flags::none);
  REQUIRE(eventually([&] { return server.stats().refused_frames == 3; }));
  WeightRequest beyond = decode_request(good);
  beyond.version = {1, sent->digest()};
  stranger.send(zmq::buffer(encode(beyond)), zmq::send_flags::none);  // no such chunk
  REQUIRE(eventually([&] { return server.stats().refused_frames == 4; }));
  zmq::socket_t listener(context, zmq::socket_type::xsub);
  listener.set(zmq::sockopt::linger, 0);
  listener.connect(server.announce_endpoint());
  for (const char* frame : {"\x01no newline", "\x02", "neither"})
    listener.send(zmq::buffer(std::string(frame)), zmq::send_flags::none);
  REQUIRE(eventually([&] { return server.stats().refused_frames == 7; }));
  stranger.send(zmq::message_t(std::string(100'000, 'x')), zmq::send_flags::none);  // closes its connection
  Receiver receiver(context, client_options(server));
  CHECK(receiver.await(1));
  CHECK(server.stats().refused_frames == 7);
}

TEST_CASE("a process that is interrupted, as by SIGSTOP and SIGCONT, goes on", "[weights]") {
  struct sigaction action {};
  action.sa_handler = [](int) {};                      // and no SA_RESTART: every wait of a thread ends
  REQUIRE(sigaction(SIGUSR2, &action, nullptr) == 0);  // for good: a thread may see its signal late
  zmq::context_t context;
  WeightServer server(context, {});
  server.offer("bf16", transfer_weights(1));
  Receiver receiver(context, client_options(server));
  CHECK(receiver.await(1));
  for (uint64_t version = 2; version <= 4; ++version) {
    std::this_thread::sleep_for(milliseconds(5));  // all wait
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const pid_t thread = std::stoi(task.path().filename());
      if (thread != gettid()) syscall(SYS_tgkill, getpid(), thread, SIGUSR2);
    }
    server.offer("bf16", transfer_weights(version));
    CHECK(receiver.await(version));
  }
  CHECK(receiver.stats().attempts_failed == 0);
}

TEST_CASE("what cannot be is refused when a server or a client is made", "[weights]") {
  zmq::context_t context;
  CHECK_THROWS_WITH(WeightServer(context, {.fetch = "tcp://nowhere.invalid:1"}),
                    Catch::StartsWith("weights cannot be served at tcp://nowhere.invalid:1: "));
  WeightServer server(context, {});
  CHECK_THROWS_AS(WeightServer(context, {.fetch = server.fetch_endpoint()}), std::runtime_error);
  CHECK_THROWS_AS(server.offer("", transfer_weights(1)), std::invalid_argument);
  const auto refused = [&](const auto& change) {
    WeightClientOptions options = client_options(server);
    change(options);
    CHECK_THROWS_AS(Receiver(context, options), std::invalid_argument);
  };
  refused([](WeightClientOptions& o) { o.fetch = "nowhere"; });
  refused([](WeightClientOptions& o) { o.announce = ""; });
  refused([](WeightClientOptions& o) { o.kind = "a\nb"; });
  refused([](WeightClientOptions& o) { o.window = 0; });
  refused([](WeightClientOptions& o) { o.window = 65; });
}

}  // namespace motley::actors
