// Keeps a sampler's weights the newest of their kind: hears of versions, fetches and checks them, hands them over. A
// plain class on a thread of its own. docs/fleet.md tells what travels.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "actors/wake_event.h"
#include "actors/weights/assembly.h"

namespace motley::actors {

struct WeightClientLimits {
  std::chrono::duration<double> answer{10};  // since the server last sent something of a version
  std::chrono::duration<double> fetch{600};  // a version as a whole
  int attempts = 5;                          // in a row without a complete version
  std::chrono::duration<double> first_pause{0.1}, longest_pause{5};  // before the next attempt; doubles
};

struct WeightClientOptions {
  std::string fetch, announce;  // addresses of the server
  std::string kind;
  TransformerConfig config;
  kernels::NumericProfile profile;
  Device device;
  uint64_t window = 8;  // chunks that are asked for ahead: 1 to kMostWindow
  WeightClientLimits limits;
  std::function<void(zmq::socket_t&)> secure;  // what CURVE needs of each socket; limits are set here
};

struct WeightClientStats {
  uint64_t versions = 0;  // handed over
  uint64_t attempts_failed = 0;
  uint64_t bytes = 0, raw_bytes = 0;  // of chunks as they came, and what they stand for
  uint64_t full_chunks = 0, delta_chunks = 0;
  double fetch_seconds = 0.0;  // of the last version, from its manifest's request to its last chunk
  double ready_seconds = 0.0;  // of the last version, until it was handed over
};

class WeightClient {
 public:
  using OnWeights = std::function<void(std::shared_ptr<const SamplerWeights>)>;
  using OnFailure = std::function<void(const std::string&)>;
  /// Both are called by the client's thread. `on_weights` gets every version that was fetched, which is the newest that
  /// was known when the fetch began; its fingerprints agree with the server's. `on_failure` is called once, after
  /// limits.attempts, with a text that names the peer and what was waited for; then the client does nothing more.
  /// Throws std::invalid_argument for an address that ZeroMQ does not take, a kind or profile that cannot be. The
  /// context outlives this.
  WeightClient(zmq::context_t& context, WeightClientOptions options, OnWeights on_weights, OnFailure on_failure);
  WeightClient(const WeightClient&) = delete;
  WeightClient& operator=(const WeightClient&) = delete;
  /// Waits for the callback or the check of an image that may be under way, for nothing else.
  ~WeightClient();

  WeightClientStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { idle, asked, fetching, pausing, failed };

  void run();
  void step();
  int milliseconds_to_wait(Clock::time_point now) const;
  void hear();
  void begin(Clock::time_point now);
  void ask_for_newest();
  void receive();
  void take_manifest(const WeightAnswer& header, const zmq::message_t& bytes);
  void take_chunk(const WeightAnswer& header, const zmq::message_t& bytes);
  void ask_for_chunks();
  void finish();
  void send(WeightRequest request);
  void fail_attempt(const std::string& reason);
  void check_time(Clock::time_point now);
  std::string whereabouts() const;

  const WeightClientOptions options_;
  const OnWeights on_weights_;
  const OnFailure on_failure_;
  zmq::context_t& context_;
  zmq::socket_t subscriber_;
  std::optional<zmq::socket_t> dealer_;  // none: nothing is being fetched
  WakeEvent wake_;

  mutable std::mutex mutex_;  // of the two that follow
  WeightClientStats stats_;
  bool closing_ = false;

  // The thread's own.
  State state_ = State::idle;
  std::optional<WeightVersion> announced_;  // last, since the newest was asked for
  uint64_t attempt_ = 0;                    // how often the newest was asked for; answers name it
  int failures_ = 0;                        // in a row
  std::optional<WeightVersion> held_;
  ImagePtr held_image_;
  bool use_deltas_ = true;  // not after a failure: what is held may be what is wrong
  std::unique_ptr<WeightAssembly> assembly_;
  Clock::time_point begun_, heard_, resume_at_;
  std::thread thread_;
};

}  // namespace motley::actors
