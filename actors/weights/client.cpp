#include "actors/weights/client.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "actors/security/sockets.h"
#include "kernels/parallel.h"

namespace motley::actors {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kMessagesPerLook = 64;  // messages between two looks at the clock
constexpr int kLinger = 200;          // milliseconds that the last message of a fetch has to leave

}  // namespace

WeightClient::WeightClient(zmq::context_t& context, WeightClientOptions options, OnWeights on_weights,
                           OnFailure on_failure)
    : options_(std::move(options)),
      on_weights_(std::move(on_weights)),
      on_failure_(std::move(on_failure)),
      context_(context),
      subscriber_(context, zmq::socket_type::sub) {
  check_kind(options_.kind);
  weight_parts(options_.config, options_.profile);
  if (options_.window < 1 || options_.window > kMostWindow)
    throw std::invalid_argument(fmt::format("a window of {} chunks; allowed: 1 to {}", options_.window, kMostWindow));
  try {
    subscriber_.set(zmq::sockopt::subscribe, weight_topic(options_.kind));
    if (options_.secure) options_.secure(subscriber_);
    harden(subscriber_, {.frame_bytes = kMostRequestBytes});
    subscriber_.connect(options_.announce);
    begin(Clock::now());
  } catch (const zmq::error_t& error) {
    throw std::invalid_argument(fmt::format("\"{}\" and \"{}\" are no addresses that ZeroMQ takes: {}", options_.fetch,
                                            options_.announce, error.what()));
  }
  thread_ = std::thread([this] { run(); });
}

WeightClient::~WeightClient() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.signal();
  thread_.join();
}

WeightClientStats WeightClient::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void WeightClient::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    try {
      step();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) fail_attempt(error.what());  // else the process was stopped and goes on
    } catch (const std::exception& error) {
      fail_attempt(error.what());
    }
  }
}

void WeightClient::step() {
  std::array<zmq::pollitem_t, 3> items{zmq::pollitem_t{nullptr, wake_.descriptor(), ZMQ_POLLIN, 0},
                                       {subscriber_.handle(), 0, ZMQ_POLLIN, 0}};
  if (dealer_) items[2] = {dealer_->handle(), 0, ZMQ_POLLIN, 0};
  const size_t count = state_ == State::failed ? 1 : dealer_ ? 3 : 2;
  zmq::poll(items.data(), count, std::chrono::milliseconds(milliseconds_to_wait(Clock::now())));
  if (state_ == State::failed) return;
  hear();
  if (dealer_) receive();
  const Clock::time_point now = Clock::now();
  check_time(now);
  if (state_ == State::idle ? announced_.has_value() : state_ == State::pausing && now >= resume_at_) begin(now);
}

int WeightClient::milliseconds_to_wait(Clock::time_point now) const {
  if (state_ == State::idle || state_ == State::failed) return -1;
  Clock::time_point until = resume_at_;
  if (state_ != State::pausing) {
    const auto after = [](Clock::time_point from, Seconds limit) {
      return from + std::chrono::duration_cast<Clock::duration>(limit);
    };
    until = std::min(after(heard_, options_.limits.answer), after(begun_, options_.limits.fetch));
  }
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(until - now).count()));
}

/// Only what was announced last counts: whoever is late does not work through old versions.
void WeightClient::hear() {
  while (true) {
    zmq::message_t topic, bytes;
    if (!subscriber_.recv(topic, zmq::recv_flags::dontwait)) return;
    bool more = topic.more();
    if (more && subscriber_.recv(bytes, zmq::recv_flags::dontwait)) more = bytes.more();
    while (more) {
      zmq::message_t rest;
      if (!subscriber_.recv(rest, zmq::recv_flags::dontwait)) break;
      more = rest.more();
    }
    const WeightAnnouncement announcement = decode_announcement(bytes.to_string_view());
    if (announcement.kind != options_.kind) continue;
    announced_ = announcement.version;
    if (announced_ == held_) announced_.reset();
  }
}

/// A connection of its own for every version, so that no answer of an earlier attempt is left in a queue.
void WeightClient::begin(Clock::time_point now) {
  dealer_.emplace(context_, zmq::socket_type::dealer);
  if (options_.secure) options_.secure(*dealer_);
  harden(*dealer_, {.frame_bytes = kMostManifestBytes});
  dealer_->connect(options_.fetch);
  begun_ = heard_ = now;
  ask_for_newest();
}

/// Answers to what was asked before count no more: a version that is gone is gone for every chunk that was asked for.
void WeightClient::ask_for_newest() {
  state_ = State::asked;
  ++attempt_;
  announced_.reset();
  send({.ask = WeightAsk::newest});
}

void WeightClient::send(WeightRequest request) {
  request.kind = options_.kind;
  request.attempt = attempt_;
  dealer_->send(zmq::message_t(encode(request)), zmq::send_flags::dontwait);
}

void WeightClient::receive() {
  for (int i = 0; i < kMessagesPerLook && dealer_; ++i) {
    zmq::message_t header, bytes;
    if (!dealer_->recv(header, zmq::recv_flags::dontwait)) return;
    if (!header.more()) throw WeightWireError("an answer without its bytes");
    if (!dealer_->recv(bytes, zmq::recv_flags::dontwait)) return;
    if (bytes.more()) throw WeightWireError("an answer of more than two frames");
    const WeightAnswer answer = decode_answer(header.to_string_view());
    if (answer.attempt != attempt_) continue;
    heard_ = Clock::now();
    switch (answer.reply) {
      case WeightReply::unknown:  // it will be announced
        state_ = State::idle;
        dealer_.reset();
        break;
      case WeightReply::manifest:
        take_manifest(answer, bytes);
        break;
      case WeightReply::gone:  // newer ones took its place
        assembly_.reset();
        ask_for_newest();
        break;
      case WeightReply::chunk:
        take_chunk(answer, bytes);
        break;
    }
  }
}

void WeightClient::take_manifest(const WeightAnswer& header, const zmq::message_t& bytes) {
  if (state_ != State::asked) throw WeightWireError("a manifest that was not asked for");
  if (hash_of(bytes.to_string_view()) != header.hash) throw WeightWireError("the manifest's hash is not what was sent");
  WeightManifest manifest = decode_manifest(bytes.to_string_view());
  check_manifest(manifest, options_.kind, options_.config, options_.profile);
  if (manifest.version == held_) {
    state_ = State::idle;
    dealer_.reset();
    return;
  }
  // What came of the same version before goes on.
  if (assembly_ && assembly_->manifest() == manifest)
    assembly_->ask_again();
  else
    assembly_ = std::make_unique<WeightAssembly>(std::move(manifest));
  assembly_->set_base(use_deltas_ ? held_image_ : nullptr);
  state_ = State::fetching;
  ask_for_chunks();
}

void WeightClient::ask_for_chunks() {
  while (assembly_->outstanding() < options_.window) {
    const auto index = assembly_->ask();
    if (!index) break;
    send({.ask = WeightAsk::chunk,
          .version = assembly_->manifest().version,
          .base = use_deltas_ && held_ ? held_->digest : 0,
          .chunk = *index});
  }
  if (assembly_->complete()) finish();
}

void WeightClient::take_chunk(const WeightAnswer& header, const zmq::message_t& bytes) {
  if (state_ != State::fetching) throw WeightWireError("a chunk that was not asked for");
  const std::span content(static_cast<const std::byte*>(bytes.data()), bytes.size());
  assembly_->accept(header.chunk, header.encoding, content);
  {
    const std::lock_guard lock(mutex_);
    stats_.bytes += content.size();
    stats_.raw_bytes +=
        assembly_->manifest().chunk(std::span<const std::byte>(*assembly_->image()), header.chunk).size();
    ++(header.encoding == ChunkEncoding::zstd_xor ? stats_.delta_chunks : stats_.full_chunks);
  }
  ask_for_chunks();
}

void WeightClient::finish() {
  const auto since = [this] { return Seconds(Clock::now() - begun_).count(); };
  const double fetched = since();
  const std::unique_ptr<WeightAssembly> assembly = std::move(assembly_);
  const WeightManifest& manifest = assembly->manifest();
  std::shared_ptr<const SamplerWeights> weights;
  {
    kernels::ComputeClient compute(kernels::ComputeSide::sampler);
    const kernels::ComputeLease lease(compute);
    weights = assembled_weights(manifest, *assembly->image(), options_.config, options_.profile, options_.device);
  }
  held_ = manifest.version;
  held_image_ = assembly->image();
  if (announced_ == held_) announced_.reset();
  use_deltas_ = true;
  failures_ = 0;
  state_ = State::idle;
  send({.ask = WeightAsk::done, .version = *held_, .milliseconds = static_cast<uint64_t>(since() * 1e3)});
  dealer_->set(zmq::sockopt::linger, kLinger);
  dealer_.reset();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.versions;
    stats_.fetch_seconds = fetched;
    stats_.ready_seconds = since();
  }
  on_weights_(std::move(weights));
}

std::string WeightClient::whereabouts() const {
  std::string text = fmt::format("weights of kind \"{}\" from {}", options_.kind, options_.fetch);
  if (assembly_) {
    const WeightManifest& manifest = assembly_->manifest();
    text += fmt::format(", version {}, chunk {} of {}", manifest.version.number, assembly_->first_missing(),
                        manifest.chunks());
  }
  return text;
}

void WeightClient::check_time(Clock::time_point now) {
  if (state_ != State::asked && state_ != State::fetching) return;
  const WeightClientLimits& limits = options_.limits;
  if (now - heard_ >= limits.answer)
    fail_attempt(fmt::format("no answer within {:.3g} s", limits.answer.count()));
  else if (now - begun_ >= limits.fetch)
    fail_attempt(fmt::format("not complete within {:.3g} s", limits.fetch.count()));
}

/// Chunks that have come and passed their check stay, for the next attempt; and so does what is held.
void WeightClient::fail_attempt(const std::string& reason) {
  if (state_ == State::failed) return;
  const std::string text = fmt::format("{}: {}", whereabouts(), reason);
  dealer_.reset();
  use_deltas_ = false;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.attempts_failed;
  }
  if (++failures_ >= options_.limits.attempts) {
    state_ = State::failed;
    assembly_.reset();
    held_image_.reset();
    on_failure_(fmt::format("{}; this was the last of {} attempts", text, options_.limits.attempts));
    return;
  }
  state_ = State::pausing;
  const Seconds pause = std::min(options_.limits.longest_pause, options_.limits.first_pause * std::exp2(failures_ - 1));
  resume_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
}

}  // namespace motley::actors
