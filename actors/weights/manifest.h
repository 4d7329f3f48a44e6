// What a version of weights consists of, so that whoever fetches it can check every byte before any is used: its
// tensors with their fingerprints, and the hash of every chunk of its image (tensor/weight_parts.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/weights/wire.h"
#include "tensor/engine.h"

namespace motley::actors {

struct ManifestPart {
  std::string name;
  WeightKind kind = WeightKind::plain;
  Shape shape;
  uint64_t bytes = 0;
  uint64_t fingerprint = 0;
  bool operator==(const ManifestPart&) const = default;
};

struct WeightManifest {
  std::string kind;
  WeightVersion version;
  std::string config;  // the model's config.json
  uint64_t chunk_bytes = 0;
  std::vector<ManifestPart> parts;     // one behind the other in the image
  std::vector<uint64_t> chunk_hashes;  // XXH3-64; the last chunk is what is left

  uint64_t bytes() const;
  uint64_t chunks() const { return chunk_hashes.size(); }
  /// Where chunk `index` lies in an image of this size.
  template <class Byte>
  std::span<Byte> chunk(std::span<Byte> image, uint64_t index) const {
    return image.subspan(index * chunk_bytes, std::min<uint64_t>(chunk_bytes, image.size() - index * chunk_bytes));
  }
  bool operator==(const WeightManifest&) const = default;
};

inline constexpr size_t kMostManifestBytes = size_t{64} << 20;
inline constexpr uint64_t kMostChunkBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMostImageBytes = uint64_t{1} << 48;

/// Of an image and the weights that wrote it. `chunk_bytes` is 1 to kMostChunkBytes. Throws std::invalid_argument where
/// the manifest would be larger than kMostManifestBytes: the chunks are too small for the model.
WeightManifest make_manifest(const std::string& kind, const SamplerWeights& weights, std::span<const std::byte> image,
                             uint64_t chunk_bytes);
/// The hashes of an image's chunks.
std::vector<uint64_t> chunk_hashes(std::span<const std::byte> image, uint64_t chunk_bytes);

std::string encode(const WeightManifest& manifest);
/// Throws WeightWireError, also where sizes do not add up: parts against their sum, chunks against the bytes.
WeightManifest decode_manifest(std::string_view bytes);

/// Throws WeightWireError that names the first difference: kind, config, and the tensors that the receiver's own model
/// and profile consist of.
void check_manifest(const WeightManifest& manifest, const std::string& kind, const TransformerConfig& config,
                    const kernels::NumericProfile& profile);

}  // namespace motley::actors
