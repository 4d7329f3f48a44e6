#include "actors/weights/server.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "actors/security/sockets.h"

namespace motley::actors {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenAnnouncements{50};  // however many subscribe at once
constexpr int kMessagesAtOnce = 64;                // messages of one socket before the other one is looked at
constexpr size_t kMostTopics = 256;                // that subscribers are counted of
constexpr size_t kMostWaiting = 1 << 14;           // requests whose chunks are being encoded
constexpr double kMostSeconds = 1e6;               // that a receiver may say it took

/// A message without a copy: `owner` lives until ZeroMQ has sent it.
zmq::message_t message_of(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  if (bytes.empty()) return {};
  const auto release = [](void*, void* hint) { delete static_cast<std::shared_ptr<const void>*>(hint); };
  auto hint = std::make_unique<std::shared_ptr<const void>>(std::move(owner));
  zmq::message_t message(const_cast<std::byte*>(bytes.data()), bytes.size(), release, hint.get());
  hint.release();
  return message;
}

std::string bind(zmq::socket_t& socket, const std::string& address) {
  try {
    socket.bind(address);
  } catch (const zmq::error_t& error) {
    throw std::runtime_error(fmt::format("weights cannot be served at {}: {}", address, error.what()));
  }
  // An IPv4 address reads as one, although the socket does both.
  std::string bound = socket.get(zmq::sockopt::last_endpoint);
  constexpr std::string_view kMapped = "[::ffff:";
  const size_t at = bound.find(kMapped);
  if (at != std::string::npos) {
    bound.erase(at, kMapped.size());
    bound.erase(bound.find(']'), 1);
  }
  return bound;
}

/// The frames of the next message, of which no more than `most` are kept; none: there is no message.
std::vector<zmq::message_t> next_message(zmq::socket_t& socket, size_t most) {
  std::vector<zmq::message_t> frames;
  for (bool more = true; more;) {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
    more = frame.more();
    if (frames.size() < most) frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace

WeightServer::WeightServer(zmq::context_t& context, WeightServerOptions options)
    : options_(std::move(options)),
      router_(context, zmq::socket_type::router),
      publisher_(context, zmq::socket_type::xpub),
      store_(options_.store),
      encoders_(options_.encoders, options_.zstd_level, [this] { wake_.signal(); }) {
  for (zmq::socket_t* socket : {&router_, &publisher_}) {
    if (options_.secure) options_.secure(*socket);
    harden(*socket, {.frame_bytes = kMostRequestBytes, .queued_messages = options_.most_waiting});
  }
  publisher_.set(zmq::sockopt::xpub_verboser, 1);  // every one who comes and goes, not the first and last of a topic
  fetch_endpoint_ = bind(router_, options_.fetch);
  announce_endpoint_ = bind(publisher_, options_.announce);
  thread_ = std::thread([this] { run(); });
}

WeightServer::~WeightServer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.signal();
  thread_.join();
}

void WeightServer::offer(const std::string& kind, const std::shared_ptr<const SamplerWeights>& weights) {
  check_kind(kind);
  const WeightVersion version{weights->version(), weights->digest()};
  {
    const std::lock_guard lock(mutex_);
    const auto [found, first] = offered_.try_emplace(kind, version);
    if (!first && found->second.number >= version.number) return;
    found->second = version;
  }
  StoredWeightsPtr stored = store_weights(kind, *weights, options_.chunk_bytes);
  {
    const std::lock_guard lock(mutex_);
    offers_.push_back(std::move(stored));
  }
  wake_.signal();
}

WeightServerStats WeightServer::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void WeightServer::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    try {
      step();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;  // the process was stopped and goes on
    }
  }
}

void WeightServer::step() {
  std::array<zmq::pollitem_t, 3> items{zmq::pollitem_t{nullptr, wake_.descriptor(), ZMQ_POLLIN, 0},
                                       {router_.handle(), 0, ZMQ_POLLIN, 0},
                                       {publisher_.handle(), 0, ZMQ_POLLIN, 0}};
  zmq::poll(items.data(), items.size(), to_announce_.empty() ? milliseconds(-1) : kBetweenAnnouncements);
  wake_.clear();
  take_offers();
  take_results();
  read_subscriptions();
  read_requests();
  announce(Clock::now());
}

void WeightServer::take_offers() {
  std::vector<StoredWeightsPtr> offers;
  {
    const std::lock_guard lock(mutex_);
    offers = std::exchange(offers_, {});
  }
  for (StoredWeightsPtr& weights : offers) {
    const std::string kind = weights->manifest.kind;
    // Offers of one kind by several threads may arrive out of order.
    const StoredWeightsPtr newest = store_.newest(kind);
    if (newest && newest->manifest.version.number >= weights->manifest.version.number) continue;
    store_.add(std::move(weights), Clock::now());
    to_announce_.insert(kind);
    announced_at_ = {};
  }
}

void WeightServer::read_subscriptions() {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    const std::vector<zmq::message_t> frames = next_message(publisher_, 2);
    if (frames.empty()) return;
    const std::string_view bytes = frames[0].to_string_view();
    try {
      if (frames.size() > 1 || bytes.empty() || (bytes[0] != 0 && bytes[0] != 1))
        throw WeightWireError("subscription: neither one nor its end");
      const std::string kind = kind_of_topic(bytes.substr(1));
      const bool comes = bytes[0] == 1;
      if (comes && store_.newest(kind)) to_announce_.insert(kind);
      const std::lock_guard lock(mutex_);
      const auto found = stats_.kinds.find(kind);
      if (found != stats_.kinds.end())
        found->second.subscribers += comes ? 1 : -1;
      else if (comes && stats_.kinds.size() < kMostTopics)
        stats_.kinds[kind].subscribers = 1;
    } catch (const WeightWireError&) {
      refuse();
    }
  }
}

void WeightServer::read_requests() {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    const std::vector<zmq::message_t> frames = next_message(router_, 3);
    if (frames.empty()) return;
    try {
      if (frames.size() != 2) throw WeightWireError("request: not one frame");
      serve(frames[0].to_string(), decode_request(frames[1].to_string_view()));
    } catch (const WeightWireError&) {
      refuse();
    }
  }
}

void WeightServer::serve(const std::string& peer, const WeightRequest& request) {
  WeightAnswer header;
  header.attempt = request.attempt;
  header.chunk = request.chunk;
  const StoredWeightsPtr newest = store_.newest(request.kind);
  if (!newest) return answer(peer, header, {});
  if (request.ask == WeightAsk::newest) {
    header.reply = WeightReply::manifest;
    header.hash = hash_of(newest->packed_manifest);
    store_.lease(peer, request.kind, newest->manifest.version, Clock::now());
    return answer(peer, header, message_of(std::as_bytes(std::span(newest->packed_manifest)), newest));
  }
  const StoredWeightsPtr weights = store_.find(request.kind, request.version);
  if (request.ask == WeightAsk::done) {
    store_.end_lease(peer);
    const double seconds = std::min(kMostSeconds, static_cast<double>(request.milliseconds) / 1e3);
    const std::lock_guard lock(mutex_);
    WeightKindStats& stats = stats_.kinds[request.kind];
    ++stats.fetches;
    stats.seconds += seconds;
    stats.longest_seconds = std::max(stats.longest_seconds, seconds);
    return;
  }
  if (!weights) {
    header.reply = WeightReply::gone;
    return answer(peer, header, {});
  }
  if (request.chunk >= weights->manifest.chunks()) throw WeightWireError("request: no such chunk");
  serve_chunk(peer, request, weights);
}

void WeightServer::serve_chunk(const std::string& peer, const WeightRequest& request, const StoredWeightsPtr& weights) {
  store_.lease(peer, request.kind, request.version, Clock::now());
  static const auto kPlain = std::make_shared<const EncodedChunk>();
  if (options_.zstd_level == 0) return send_chunk(peer, request, weights, kPlain);
  StoredWeightsPtr base = store_.base(*weights, request.base);
  if (const auto chunk = store_.encoded(*weights, base.get(), request.chunk))
    return send_chunk(peer, request, weights, chunk);
  if (waiting_count_ == kMostWaiting) throw WeightWireError("request: too many wait");
  ++waiting_count_;
  auto& waiting = waiting_[{weights.get(), base.get(), request.chunk}];
  waiting.emplace_back(peer, request);
  if (waiting.size() == 1) encoders_.submit({weights, std::move(base), request.chunk, nullptr});
}

void WeightServer::take_results() {
  for (const EncodingJob& job : encoders_.results()) {
    store_.keep(*job.weights, job.base.get(), job.index, job.result);
    const auto found = waiting_.extract({job.weights.get(), job.base.get(), job.index});
    waiting_count_ -= found.mapped().size();
    for (const auto& [peer, request] : found.mapped()) send_chunk(peer, request, job.weights, job.result);
  }
}

void WeightServer::send_chunk(const std::string& peer, const WeightRequest& request, const StoredWeightsPtr& weights,
                              const std::shared_ptr<const EncodedChunk>& chunk) {
  const std::span<const std::byte> raw = weights->chunk(request.chunk);
  WeightAnswer header;
  header.reply = WeightReply::chunk;
  header.attempt = request.attempt;
  header.chunk = request.chunk;
  header.encoding = chunk->encoding;
  zmq::message_t bytes =
      chunk->encoding == ChunkEncoding::raw ? message_of(raw, weights->image) : message_of(chunk->bytes, chunk);
  const size_t sent = bytes.size();
  answer(peer, header, std::move(bytes));
  const std::lock_guard lock(mutex_);
  WeightKindStats& stats = stats_.kinds[request.kind];
  const bool delta = chunk->encoding == ChunkEncoding::zstd_xor;
  (delta ? stats.delta_bytes : stats.full_bytes) += sent;
  (delta ? stats.delta_raw_bytes : stats.full_raw_bytes) += raw.size();
  stats.memory = store_.memory(request.kind);
}

/// Never waits: what a peer does not read, or has gone away from, is dropped.
void WeightServer::answer(const std::string& peer, const WeightAnswer& header, zmq::message_t bytes) {
  const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  router_.send(zmq::buffer(peer), more);
  router_.send(zmq::message_t(encode(header)), more);
  router_.send(std::move(bytes), zmq::send_flags::dontwait);
}

void WeightServer::announce(Clock::time_point now) {
  if (to_announce_.empty() || now - announced_at_ < kBetweenAnnouncements) return;
  announced_at_ = now;
  for (const std::string& kind : std::exchange(to_announce_, {})) {
    const StoredWeightsPtr newest = store_.newest(kind);
    publisher_.send(zmq::message_t(weight_topic(kind)), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    publisher_.send(zmq::message_t(encode(WeightAnnouncement{kind, newest->manifest.version})),
                    zmq::send_flags::dontwait);
    const std::lock_guard lock(mutex_);
    stats_.kinds[kind].memory = store_.memory(kind);
  }
}

void WeightServer::refuse() {
  const std::lock_guard lock(mutex_);
  ++stats_.refused_frames;
}

}  // namespace motley::actors
