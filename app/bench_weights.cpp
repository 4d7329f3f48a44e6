// motley bench weights: how fast weights travel between processes of one machine, beside ZeroMQ alone, and how many
// bytes of them do, in full and as deltas after a step of the optimizer.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <zmq.hpp>

#include "actors/weights/client.h"
#include "actors/weights/server.h"
#include "app/bench.h"
#include "app/input_error.h"

namespace motley::app {
namespace {

using actors::WeightClient;
using actors::WeightServer;
using Image = std::vector<std::byte>;
using WeightsPtr = std::shared_ptr<const SamplerWeights>;

constexpr uint64_t kChunk = uint64_t{1} << 20;
constexpr int kLevel = 1;  // of zstd, as a server has it

Image image_of(const SamplerWeights& weights) {
  Image image(image_bytes(weight_parts(weights.config(), weights.profile())));
  weights.write_image(image);
  return image;
}

/// Seconds in which a PULL socket gets so many bytes in frames of a chunk from a PUSH socket, which sends the same
/// memory again and again.
double bare_pair(uint64_t bytes) {
  zmq::context_t context;
  zmq::socket_t pull(context, zmq::socket_type::pull), push(context, zmq::socket_type::push);
  pull.bind("tcp://127.0.0.1:*");
  push.connect(pull.get(zmq::sockopt::last_endpoint));
  Image frame(kChunk, std::byte{1});
  const auto message = [&](uint64_t size) {
    return zmq::message_t(
        frame.data(), size, [](void*, void*) {}, nullptr);
  };
  push.send(message(1), zmq::send_flags::none);
  zmq::message_t received;
  (void)pull.recv(received);  // connected
  const double begin = seconds_now();
  std::thread sender([&] {
    for (uint64_t left = bytes; left > 0; left -= std::min(left, kChunk))
      push.send(message(std::min(left, kChunk)), zmq::send_flags::none);
  });
  for (uint64_t got = 0; got < bytes; got += received.size()) (void)pull.recv(received);
  const double seconds = seconds_now() - begin;
  sender.join();
  return seconds;
}

/// Seconds in which a client that holds nothing has fetched and checked a version, and hands it over.
double full_copy(zmq::context_t& context, const WeightServer& server, const SamplerWeights& weights) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::string failure;
  actors::WeightClientOptions options;
  options.fetch = server.fetch_endpoint();
  options.announce = server.announce_endpoint();
  options.kind = weights.profile().name;
  options.config = weights.config();
  options.profile = weights.profile();
  const auto finish = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    failure = text;
    done = true;
    changed.notify_all();
  };
  const WeightClient client(
      context, options, [&](const WeightsPtr&) { finish(""); }, finish);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (!failure.empty()) throw std::runtime_error(failure);
  return client.stats().fetch_seconds;
}

BenchCase copy_case(const BenchShape& shape, const WeightsPtr& weights, int level) {
  struct Link {
    zmq::context_t context;
    WeightServer server;
    explicit Link(int level) : server(context, {.chunk_bytes = kChunk, .zstd_level = level}) {}
  };
  const auto link = std::make_shared<Link>(level);
  link->server.offer(weights->profile().name, weights);
  BenchCase c;
  c.row.group = "weights";
  c.row.name =
      fmt::format("{} {}, full copy{}", shape.name, weights->profile().name, level == 0 ? ", plain bytes" : "");
  c.row.bytes = static_cast<double>(image_of(*weights).size());
  c.row.more = {{"shape", shape.name}, {"profile", weights->profile().name}, {"zstd_level", level}};
  c.timed = [link, weights] { return full_copy(link->context, link->server, *weights); };
  return c;
}

/// As a server would send it.
uint64_t sent_bytes(const Image& image, const Image& base) {
  uint64_t sum = 0;
  for (uint64_t at = 0; at < image.size(); at += kChunk) {
    const auto piece = [at](const Image& of) {
      return of.empty() ? std::span<const std::byte>() : std::span(of).subspan(at, std::min(kChunk, of.size() - at));
    };
    const actors::EncodedChunk chunk = actors::encode_chunk(piece(image), piece(base), kLevel);
    sum += chunk.encoding == actors::ChunkEncoding::raw ? piece(image).size() : chunk.bytes.size();
  }
  return sum;
}

/// Masters before and after a step of AdamW whose moments have had some steps to settle.
std::pair<Parameters, Parameters> stepped(const BenchArguments& arguments, const BenchShape& shape, double lr) {
  const int64_t sequences = arguments.quick ? 2 : shape.sequences, length = arguments.quick ? 8 : shape.length;
  constexpr int kSettling = 3;
  TransformerConfig model = shape.config;
  model.max_positions = length;
  Parameters parameters = Parameters::initialize(model, 1);
  algos::LearnerConfig config;
  config.profile = find_bench_profile("bf16");
  config.kv_format = config.profile.kv_cache;
  config.micro_batch_tokens = sequences * length;
  config.optimizer.lr = lr;
  algos::Learner learner(model, parameters, config);
  const auto batch = bench_batch(sequences, length, model.vocabulary);
  for (int i = 0; i < kSettling; ++i) learner.supervised_step(batch);
  Parameters before = parameters.clone();
  learner.supervised_step(batch);
  return {std::move(before), parameters.clone()};
}

/// One row a profile: what travels of the shape's weights.
std::vector<BenchRow> sizes(const BenchArguments& arguments, const BenchShape& shape,
                            const std::vector<std::string>& profiles) {
  std::vector<BenchRow> rows;
  for (const std::string& profile : profiles) {
    BenchRow row;
    row.group = "sizes";
    row.name = fmt::format("{} {}, bytes", shape.name, profile);
    row.more = {{"shape", shape.name}, {"profile", profile}};
    rows.push_back(std::move(row));
  }
  // From a learning rate at which small models are trained to one at which large ones are.
  for (const double lr : {4e-4, 1e-5, 1e-6}) {
    const auto [before, after] = stepped(arguments, shape, lr);
    for (size_t i = 0; i < profiles.size(); ++i) {
      const kernels::NumericProfile& profile = find_bench_profile(profiles[i]);
      const auto image = [&](const Parameters& masters) {
        return image_of(SamplerWeights(shape.config, masters, profile, 0));
      };
      const Image next = image(after);
      rows[i].more["plain"] = next.size();
      rows[i].more["full"] = sent_bytes(next, {});
      rows[i].more[fmt::format("delta, lr {:g}", lr)] = sent_bytes(next, image(before));
    }
  }
  return rows;
}

}  // namespace

void check_weights(const BenchArguments& arguments) {
  for (const std::string& name : arguments.profiles) find_bench_profile(name);
  for (const std::string& name : arguments.shapes) find_shape(name);
}

std::vector<BenchRow> bench_weights(const BenchArguments& arguments) {
  std::vector<std::string> shapes = arguments.shapes, profiles = arguments.profiles;
  if (shapes.empty()) shapes = {arguments.quick ? "1M" : "25M"};
  if (profiles.empty()) profiles = {"bf16", "fp8", "nvfp4"};
  std::vector<BenchRow> rows;
  for (const std::string& name : shapes) {
    const BenchShape& shape = find_shape(name);
    std::vector<BenchCase> cases;
    for (const std::string& profile : profiles) {
      const auto weights = std::make_shared<const SamplerWeights>(shape.config, Parameters::initialize(shape.config, 1),
                                                                  find_bench_profile(profile), 1);
      BenchCase bare;
      bare.row.group = "weights";
      bare.row.name = fmt::format("{} {}, as many bytes by a bare PUSH and PULL", name, profile);
      const auto bytes = static_cast<uint64_t>(image_of(*weights).size());
      bare.row.bytes = static_cast<double>(bytes);
      bare.row.more = {{"shape", name}, {"profile", profile}};
      bare.timed = [bytes] { return bare_pair(bytes); };
      cases.push_back(std::move(bare));
      for (const int level : {0, kLevel}) cases.push_back(copy_case(shape, weights, level));
    }
    for (BenchRow& row : run_cases(std::move(cases), effort_of(arguments))) rows.push_back(std::move(row));
    for (BenchRow& row : sizes(arguments, shape, profiles)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace motley::app
