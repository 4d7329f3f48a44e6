// Serves versions of weights to samplers in other processes: announces them, and sends what is asked for, chunk by
// chunk. A plain class on a thread of its own. docs/fleet.md tells what travels.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>
#include <zmq.hpp>

#include "actors/wake_event.h"
#include "actors/weights/encoders.h"

namespace motley::actors {

struct WeightServerOptions {
  std::string fetch = "tcp://127.0.0.1:*";     // where a ROUTER is bound; port *: any
  std::string announce = "tcp://127.0.0.1:*";  // where an XPUB is
  uint64_t chunk_bytes = uint64_t{1} << 20;
  StoreLimits store;
  int zstd_level = 1;                          // 0: nothing is compressed, and there are no deltas
  int encoders = 0;                            // threads that compress; 0: a quarter of the cores, from 1 to 8
  int most_waiting = 4 * kMostWindow;          // for one peer to read; more are not sent to it
  std::function<void(zmq::socket_t&)> secure;  // what CURVE needs of each socket; limits are set here
};

/// Of one kind, since the start. Bytes are those of chunks as they were sent; raw bytes those that they stand for.
struct WeightKindStats {
  int64_t subscribers = 0;                      // now
  uint64_t fetches = 0;                         // complete versions, as their receivers say
  double seconds = 0.0, longest_seconds = 0.0;  // of these: all together, and the longest
  uint64_t full_bytes = 0, full_raw_bytes = 0;
  uint64_t delta_bytes = 0, delta_raw_bytes = 0;
  WeightStore::Memory memory;
};
struct WeightServerStats {
  std::map<std::string, WeightKindStats> kinds;
  uint64_t refused_frames = 0;  // that were no messages of this protocol
};

class WeightServer {
 public:
  /// Throws std::runtime_error, which names the address, where one cannot be bound. The context outlives this.
  WeightServer(zmq::context_t& context, WeightServerOptions options);
  WeightServer(const WeightServer&) = delete;
  WeightServer& operator=(const WeightServer&) = delete;
  ~WeightServer();

  /// Addresses with their ports.
  const std::string& fetch_endpoint() const { return fetch_endpoint_; }
  const std::string& announce_endpoint() const { return announce_endpoint_; }

  /// Makes them the newest weights of their kind and announces them; does nothing for a version that was offered
  /// before. Takes the image in the calling thread and keeps no reference. Thread-safe. Throws std::invalid_argument
  /// for what is no kind.
  void offer(const std::string& kind, const std::shared_ptr<const SamplerWeights>& weights);
  WeightServerStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void step();
  void take_offers();
  void read_subscriptions();
  void read_requests();
  void serve(const std::string& peer, const WeightRequest& request);
  void serve_chunk(const std::string& peer, const WeightRequest& request, const StoredWeightsPtr& weights);
  void take_results();
  void send_chunk(const std::string& peer, const WeightRequest& request, const StoredWeightsPtr& weights,
                  const std::shared_ptr<const EncodedChunk>& chunk);
  void answer(const std::string& peer, const WeightAnswer& header, zmq::message_t bytes);
  void announce(Clock::time_point now);
  void refuse();

  const WeightServerOptions options_;
  zmq::socket_t router_, publisher_;
  std::string fetch_endpoint_, announce_endpoint_;
  WakeEvent wake_;

  mutable std::mutex mutex_;                      // of the four that follow
  std::map<std::string, WeightVersion> offered_;  // by kind
  std::vector<StoredWeightsPtr> offers_;
  WeightServerStats stats_;
  bool closing_ = false;

  // The thread's own.
  WeightStore store_;
  std::set<std::string> to_announce_;  // kinds
  Clock::time_point announced_at_;
  // Who waits for a chunk that is being encoded: of a version, against a base (null: none), by its number.
  using Encoding = std::tuple<const StoredWeights*, const StoredWeights*, uint64_t>;
  std::map<Encoding, std::vector<std::pair<std::string, WeightRequest>>> waiting_;
  size_t waiting_count_ = 0;
  ChunkEncoders encoders_;
  std::thread thread_;
};

}  // namespace motley::actors
