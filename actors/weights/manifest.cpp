#include "actors/weights/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "kernels/parallel.h"
#include "tensor/config_json.h"

namespace motley::actors {
namespace {

constexpr uint64_t kManifestVersion = 1;
constexpr size_t kMostParts = 1 << 16, kMostNameBytes = 512, kMostConfigBytes = 1 << 16, kMostDimensions = 4;
constexpr uint64_t kMostSize = uint64_t{1} << 40;  // of a dimension
constexpr uint32_t kFields = 9, kPartFields = 5;

uint64_t chunk_count(uint64_t bytes, uint64_t chunk_bytes) { return bytes / chunk_bytes + (bytes % chunk_bytes != 0); }

void pack(msgpack::packer<msgpack::sbuffer>& out, const ManifestPart& part) {
  out.pack_array(kPartFields);
  out.pack(part.name).pack(static_cast<uint8_t>(part.kind)).pack(part.shape).pack(part.bytes).pack(part.fingerprint);
}

ManifestPart decode_part(WireArray array) {
  ManifestPart part;
  part.name = array.text("a tensor's name", kMostNameBytes);
  part.kind = static_cast<WeightKind>(array.number("a tensor's kind", static_cast<uint64_t>(WeightKind::quantized)));
  WireArray shape = array.array();
  if (shape.size() > kMostDimensions) shape.refuse(fmt::format("{} dimensions", shape.size()));
  while (part.shape.size() < shape.size())
    part.shape.push_back(static_cast<int64_t>(shape.number("a dimension", kMostSize)));
  part.bytes = array.number("a tensor's bytes", kMostImageBytes);
  part.fingerprint = array.number("a fingerprint");
  array.done();
  return part;
}

/// Eight bytes each, little endian.
std::vector<uint64_t> decode_hashes(std::string_view bytes) {
  std::vector<uint64_t> hashes(bytes.size() / sizeof(uint64_t));
  if (!hashes.empty()) std::memcpy(hashes.data(), bytes.data(), hashes.size() * sizeof(uint64_t));
  return hashes;
}

std::string shown(const ManifestPart& part) {
  return fmt::format("{} [{}] of {} bytes, {}", part.name, fmt::join(part.shape, ", "), part.bytes,
                     part.kind == WeightKind::quantized ? "quantized" : "plain");
}

}  // namespace

uint64_t WeightManifest::bytes() const {
  uint64_t sum = 0;
  for (const ManifestPart& part : parts) sum += part.bytes;
  return sum;
}

std::vector<uint64_t> chunk_hashes(std::span<const std::byte> image, uint64_t chunk_bytes) {
  std::vector<uint64_t> hashes(chunk_count(image.size(), chunk_bytes));
  kernels::parallel_for(static_cast<int64_t>(hashes.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<uint64_t>(begin); i < static_cast<uint64_t>(end); ++i)
      hashes[i] = hash_of(image.subspan(i * chunk_bytes, std::min(chunk_bytes, image.size() - i * chunk_bytes)));
  });
  return hashes;
}

WeightManifest make_manifest(const std::string& kind, const SamplerWeights& weights, std::span<const std::byte> image,
                             uint64_t chunk_bytes) {
  check_kind(kind);
  if (chunk_bytes < 1 || chunk_bytes > kMostChunkBytes)
    throw std::invalid_argument(fmt::format("chunks of {} bytes; allowed: 1 to {}", chunk_bytes, kMostChunkBytes));
  WeightManifest manifest;
  manifest.kind = kind;
  manifest.version = {weights.version(), weights.digest()};
  manifest.config = config_to_json(weights.config());
  manifest.chunk_bytes = chunk_bytes;
  for (const WeightPart& part : weight_parts(weights.config(), weights.profile()))
    manifest.parts.push_back({part.name, part.kind, part.shape, part.bytes, weights.fingerprints().at(part.name)});
  if (chunk_count(image.size(), chunk_bytes) > kMostManifestBytes / (2 * sizeof(uint64_t)))
    throw std::invalid_argument(
        fmt::format("chunks of {} bytes are too small for {} bytes of weights", chunk_bytes, image.size()));
  manifest.chunk_hashes = chunk_hashes(image, chunk_bytes);
  return manifest;
}

std::string encode(const WeightManifest& manifest) {
  msgpack::sbuffer buffer;
  msgpack::packer out(buffer);
  out.pack_array(kFields);
  out.pack(kManifestVersion).pack(manifest.kind);
  out.pack(manifest.version.number).pack(manifest.version.digest).pack(manifest.config);
  out.pack(manifest.chunk_bytes).pack(manifest.bytes());
  out.pack_array(static_cast<uint32_t>(manifest.parts.size()));
  for (const ManifestPart& part : manifest.parts) pack(out, part);
  const auto hash_bytes = static_cast<uint32_t>(manifest.chunk_hashes.size() * sizeof(uint64_t));
  out.pack_bin(hash_bytes).pack_bin_body(reinterpret_cast<const char*>(manifest.chunk_hashes.data()), hash_bytes);
  return {buffer.data(), buffer.size()};
}

WeightManifest decode_manifest(std::string_view bytes) {
  if (bytes.size() > kMostManifestBytes)
    throw WeightWireError(fmt::format("manifest: {} bytes; at most {}", bytes.size(), kMostManifestBytes));
  WireArray array("manifest", bytes, kMostParts, kMostManifestBytes);
  const uint64_t version = array.number("its version");
  if (version != kManifestVersion)
    array.refuse(fmt::format("of version {}; this build reads {}", version, kManifestVersion));
  WeightManifest manifest;
  manifest.kind = array.text("kind", kMostKindBytes);
  manifest.version.number = array.number("version of the weights");
  manifest.version.digest = array.number("digest");
  manifest.config = array.text("config", kMostConfigBytes);
  manifest.chunk_bytes = array.number("bytes of a chunk", kMostChunkBytes);
  if (manifest.chunk_bytes == 0) array.refuse("chunks of no bytes");
  const uint64_t total = array.number("bytes", kMostImageBytes);
  WireArray parts = array.array();
  uint64_t sum = 0;  // of at most kMostParts times kMostImageBytes: may not wrap around
  for (size_t i = 0; i < parts.size(); ++i) {
    manifest.parts.push_back(decode_part(parts.array()));
    sum += manifest.parts.back().bytes;
    if (sum > total) array.refuse(fmt::format("tensors of more than {} bytes", total));
  }
  const std::string_view hashes = array.binary("hashes");
  array.done();
  if (sum != total) array.refuse(fmt::format("tensors of {} bytes, not {}", sum, total));
  if (hashes.size() % sizeof(uint64_t) != 0 ||
      hashes.size() / sizeof(uint64_t) != chunk_count(total, manifest.chunk_bytes))
    array.refuse(
        fmt::format("{} bytes of hashes for {} bytes in chunks of {}", hashes.size(), total, manifest.chunk_bytes));
  manifest.chunk_hashes = decode_hashes(hashes);
  return manifest;
}

void check_manifest(const WeightManifest& manifest, const std::string& kind, const TransformerConfig& config,
                    const kernels::NumericProfile& profile) {
  const auto refuse = [](const std::string& reason) { throw WeightWireError("manifest: " + reason); };
  if (manifest.kind != kind) refuse(fmt::format("of kind \"{}\", not \"{}\"", manifest.kind, kind));
  const std::string own = config_to_json(config);
  if (manifest.config != own) refuse(fmt::format("the model is another one: {} there, {} here", manifest.config, own));
  const std::vector<WeightPart> parts = weight_parts(config, profile);
  for (size_t i = 0; i < std::max(parts.size(), manifest.parts.size()); ++i) {
    if (i >= parts.size()) refuse(fmt::format("tensor {} is one too many", manifest.parts[i].name));
    ManifestPart want{parts[i].name, parts[i].kind, parts[i].shape, parts[i].bytes, 0};
    if (i >= manifest.parts.size()) refuse(fmt::format("tensor {} is missing", want.name));
    want.fingerprint = manifest.parts[i].fingerprint;
    if (manifest.parts[i] != want)
      refuse(fmt::format("{} there, {} here in {}", shown(manifest.parts[i]), shown(want), profile.name));
  }
}

}  // namespace motley::actors
