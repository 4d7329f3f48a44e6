#include "actors/weights/assembly.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley::actors {

WeightAssembly::WeightAssembly(WeightManifest manifest)
    : manifest_(std::move(manifest)),
      image_(std::make_shared<std::vector<std::byte>>(manifest_.bytes())),
      states_(manifest_.chunks(), State::wanted),
      missing_(manifest_.chunks()) {}

std::optional<uint64_t> WeightAssembly::ask() {
  while (next_ < states_.size() && states_[next_] != State::wanted) ++next_;
  if (next_ == states_.size()) return std::nullopt;
  states_[next_] = State::asked;
  ++outstanding_;
  return next_;
}

void WeightAssembly::ask_again() {
  std::replace(states_.begin(), states_.end(), State::asked, State::wanted);
  outstanding_ = 0;
  next_ = 0;
}

void WeightAssembly::accept(uint64_t index, ChunkEncoding encoding, std::span<const std::byte> bytes) {
  if (index >= states_.size() || states_[index] == State::wanted)
    throw WeightWireError(fmt::format("chunk {} of {} was not asked for", index, states_.size()));
  if (states_[index] == State::here) return;
  const std::span<std::byte> out = manifest_.chunk(std::span(*image_), index);
  std::span<const std::byte> base;
  if (base_ && base_->size() == image_->size()) base = manifest_.chunk(std::span<const std::byte>(*base_), index);
  try {
    decode_chunk(encoding, bytes, base, out);
    if (hash_of(std::span<const std::byte>(out)) != manifest_.chunk_hashes[index])
      throw WeightWireError("its hash is not the manifest's");
  } catch (const WeightWireError& error) {
    throw WeightWireError(fmt::format("chunk {} of {}: {}", index, states_.size(), error.what()));
  }
  states_[index] = State::here;
  --missing_;
  --outstanding_;
}

uint64_t WeightAssembly::first_missing() const {
  const auto found = std::find_if(states_.begin(), states_.end(), [](State s) { return s != State::here; });
  return static_cast<uint64_t>(found - states_.begin());
}

std::shared_ptr<const SamplerWeights> assembled_weights(const WeightManifest& manifest,
                                                        std::span<const std::byte> image,
                                                        const TransformerConfig& config,
                                                        const kernels::NumericProfile& profile, const Device& device) {
  auto weights = std::make_shared<SamplerWeights>(config, profile, manifest.version.number, device, image);
  for (const ManifestPart& part : manifest.parts) {
    const uint64_t here = weights->fingerprints().at(part.name);
    if (here != part.fingerprint)
      throw WeightWireError(fmt::format("version {}: the fingerprint of {} is {:016x} here, {:016x} there",
                                        manifest.version.number, part.name, here, part.fingerprint));
  }
  if (weights->digest() != manifest.version.digest)
    throw WeightWireError("the digest of the manifest is not that of its fingerprints");
  return weights;
}

}  // namespace motley::actors
