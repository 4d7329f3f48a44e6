#include "actors/weights/store.h"

#include <algorithm>

namespace motley::actors {
namespace {

/// What a version's encoded chunks are found by: 0 for those against none.
uint64_t digest_of(const StoredWeights* base) { return base == nullptr ? 0 : base->manifest.version.digest; }

}  // namespace

StoredWeightsPtr store_weights(const std::string& kind, const SamplerWeights& weights, uint64_t chunk_bytes) {
  const auto image =
      std::make_shared<std::vector<std::byte>>(image_bytes(weight_parts(weights.config(), weights.profile())));
  weights.write_image(*image);
  auto stored = std::make_shared<StoredWeights>();
  stored->manifest = make_manifest(kind, weights, *image, chunk_bytes);
  stored->packed_manifest = encode(stored->manifest);
  stored->image = image;
  return stored;
}

void WeightStore::add(StoredWeightsPtr weights, Clock::time_point now) {
  const std::string kind = weights->manifest.kind;
  kinds_[kind].push_back({std::move(weights), {}});
  drop_unneeded(kind, now);
}

StoredWeightsPtr WeightStore::newest(const std::string& kind) const {
  const auto found = kinds_.find(kind);
  return found == kinds_.end() ? nullptr : found->second.back().weights;
}

StoredWeightsPtr WeightStore::find(const std::string& kind, const WeightVersion& version) const {
  const auto found = kinds_.find(kind);
  if (found == kinds_.end()) return nullptr;
  for (const Version& entry : found->second)
    if (entry.weights->manifest.version == version) return entry.weights;
  return nullptr;
}

void WeightStore::lease(const std::string& peer, const std::string& kind, const WeightVersion& version,
                        Clock::time_point now) {
  Lease& lease = leases_[peer];
  if (lease.kind != kind || lease.version != version) lease = {kind, version, now, now};
  lease.last = now;
}

/// Among the leased the one that was begun first stays longest: it is the nearest to its end.
void WeightStore::drop_unneeded(const std::string& kind, Clock::time_point now) {
  std::erase_if(leases_, [&](const auto& entry) { return now - entry.second.last > limits_.lease; });
  std::vector<Version>& versions = kinds_.at(kind);
  std::vector<std::pair<Clock::time_point, WeightVersion>> leased;
  for (const auto& [peer, lease] : leases_)
    if (lease.kind == kind) leased.emplace_back(lease.begun, lease.version);
  std::sort(leased.begin(), leased.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t recent = std::min(versions.size(), 1 + limits_.bases);
  const size_t old = versions.size() - recent;
  std::vector<WeightVersion> kept;
  for (const auto& [begun, version] : leased) {
    const auto is = [&v = version](const Version& entry) { return entry.weights->manifest.version == v; };
    const bool among_old = std::any_of(versions.begin(), versions.begin() + static_cast<int64_t>(old), is);
    if (among_old && kept.size() < limits_.leased && std::find(kept.begin(), kept.end(), version) == kept.end())
      kept.push_back(version);
  }
  const auto unneeded = [&](const Version& entry) {
    return std::find(kept.begin(), kept.end(), entry.weights->manifest.version) == kept.end();
  };
  const auto old_end = versions.begin() + static_cast<int64_t>(old);
  versions.erase(std::remove_if(versions.begin(), old_end, unneeded), old_end);
  for (Version& entry : versions) {
    const auto is_leased = [&](const auto& lease) { return lease.second == entry.weights->manifest.version; };
    if (&entry != &versions.back() && std::none_of(leased.begin(), leased.end(), is_leased)) entry.encoded.clear();
    // Deltas against what is gone.
    std::erase_if(entry.encoded, [&](const auto& chunks) {
      return chunks.first != 0 && std::none_of(versions.begin(), versions.end(), [&](const Version& other) {
               return other.weights->manifest.version.digest == chunks.first;
             });
    });
  }
}

StoredWeightsPtr WeightStore::base(const StoredWeights& weights, uint64_t digest) const {
  if (digest == 0) return nullptr;
  for (const Version& entry : kinds_.at(weights.manifest.kind)) {
    const bool held = entry.weights->manifest.version.digest == digest;
    if (held && entry.weights->image->size() == weights.image->size()) return entry.weights;
  }
  return nullptr;
}

std::optional<size_t> WeightStore::position_of(const StoredWeights& weights) const {
  const std::vector<Version>& versions = kinds_.at(weights.manifest.kind);
  for (size_t i = 0; i < versions.size(); ++i)
    if (versions[i].weights.get() == &weights) return i;
  return std::nullopt;
}

std::shared_ptr<const EncodedChunk> WeightStore::encoded(const StoredWeights& weights, const StoredWeights* base,
                                                         uint64_t index) const {
  const auto position = position_of(weights);
  if (!position) return nullptr;
  const Version& version = kinds_.at(weights.manifest.kind)[*position];
  const auto found = version.encoded.find(digest_of(base));
  return found == version.encoded.end() ? nullptr : found->second.encoded[index];
}

void WeightStore::keep(const StoredWeights& weights, const StoredWeights* base, uint64_t index,
                       std::shared_ptr<const EncodedChunk> encoded) {
  const auto position = position_of(weights);
  if (!position || (base != nullptr && !position_of(*base))) return;
  Chunks& chunks = kinds_.at(weights.manifest.kind)[*position].encoded[digest_of(base)];
  chunks.encoded.resize(weights.manifest.chunks());
  chunks.bytes += encoded->bytes.size();
  chunks.encoded[index] = std::move(encoded);
}

WeightStore::Memory WeightStore::memory(const std::string& kind) const {
  Memory memory;
  const auto found = kinds_.find(kind);
  if (found == kinds_.end()) return memory;
  for (const Version& version : found->second) {
    ++memory.versions;
    memory.images += version.weights->image->size();
    for (const auto& [base, chunks] : version.encoded) memory.encoded += chunks.bytes;
  }
  return memory;
}

}  // namespace motley::actors
