// The versions of weights that a server has, and their chunks as they are sent. No sockets and no threads: one thread
// at a time.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/weights/chunk_coding.h"
#include "actors/weights/manifest.h"

namespace motley::actors {

/// A version as it is kept: the image and what is said of it.
struct StoredWeights {
  WeightManifest manifest;
  std::string packed_manifest;
  std::shared_ptr<const std::vector<std::byte>> image;
  std::span<const std::byte> chunk(uint64_t index) const {
    return manifest.chunk(std::span<const std::byte>(*image), index);
  }
};
using StoredWeightsPtr = std::shared_ptr<const StoredWeights>;
/// Takes the image of `weights`, which are not kept.
StoredWeightsPtr store_weights(const std::string& kind, const SamplerWeights& weights, uint64_t chunk_bytes);

/// Of each kind there are at most 1 + bases + leased images. What is sent of one that is the newest or being fetched is
/// kept too, for each version that its receivers hold: never more than the image itself.
struct StoreLimits {
  size_t bases = 2;                         // versions before the newest that deltas may be made against
  size_t leased = 2;                        // older ones that somebody is fetching
  std::chrono::duration<double> lease{10};  // since a peer last asked for a chunk
};

class WeightStore {
 public:
  using Clock = std::chrono::steady_clock;
  explicit WeightStore(StoreLimits limits) : limits_(limits) {}

  /// Makes it the newest of its kind, and drops what nobody needs any more.
  void add(StoredWeightsPtr weights, Clock::time_point now);
  /// Null: there is none.
  StoredWeightsPtr newest(const std::string& kind) const;
  StoredWeightsPtr find(const std::string& kind, const WeightVersion& version) const;

  /// `peer` is fetching that version, and no other; keeps it for a while.
  void lease(const std::string& peer, const std::string& kind, const WeightVersion& version, Clock::time_point now);
  void end_lease(const std::string& peer) { leases_.erase(peer); }

  /// The version of that digest, if deltas of `weights` can be made against it; null for 0 and for one that is gone.
  StoredWeightsPtr base(const StoredWeights& weights, uint64_t digest) const;
  /// A chunk as it is sent to whoever holds `base` (null: none), encoded once for all who ask. Null: not yet.
  std::shared_ptr<const EncodedChunk> encoded(const StoredWeights& weights, const StoredWeights* base,
                                              uint64_t index) const;
  /// Keeps it, unless one of the versions is gone.
  void keep(const StoredWeights& weights, const StoredWeights* base, uint64_t index,
            std::shared_ptr<const EncodedChunk> encoded);

  struct Memory {
    size_t versions = 0;
    uint64_t images = 0, encoded = 0;  // bytes
  };
  Memory memory(const std::string& kind) const;

 private:
  struct Chunks {
    std::vector<std::shared_ptr<const EncodedChunk>> encoded;  // null: nobody asked for it
    uint64_t bytes = 0;
  };
  struct Version {
    StoredWeightsPtr weights;
    std::map<uint64_t, Chunks> encoded;  // by the digest of the base; 0: none
  };
  struct Lease {
    std::string kind;
    WeightVersion version;
    Clock::time_point begun, last;
  };
  std::optional<size_t> position_of(const StoredWeights& weights) const;  // among the versions of its kind
  void drop_unneeded(const std::string& kind, Clock::time_point now);

  const StoreLimits limits_;
  std::map<std::string, std::vector<Version>> kinds_;  // oldest first
  std::map<std::string, Lease> leases_;                // by peer
};

}  // namespace motley::actors
