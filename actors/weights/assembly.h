// A version on its way: which chunks have come, each of them checked, and the image that they make.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "actors/weights/chunk_coding.h"
#include "actors/weights/manifest.h"

namespace motley::actors {

using ImagePtr = std::shared_ptr<const std::vector<std::byte>>;

class WeightAssembly {
 public:
  explicit WeightAssembly(WeightManifest manifest);
  /// `image` is a version of the same layout whose digest the peer was told; deltas are made against it. Null: none.
  void set_base(ImagePtr image) { base_ = std::move(image); }

  const WeightManifest& manifest() const { return manifest_; }
  /// A chunk that nobody asked for yet; none: all were asked for.
  std::optional<uint64_t> ask();
  /// What was asked for and has not come will be asked for again.
  void ask_again();
  /// Takes a chunk that was asked for; one that has come already is ignored. Throws WeightWireError, and takes nothing,
  /// for a chunk that was not asked for, that cannot be decoded, or whose hash is not the manifest's.
  void accept(uint64_t index, ChunkEncoding encoding, std::span<const std::byte> bytes);
  bool complete() const { return missing_ == 0; }
  uint64_t outstanding() const { return outstanding_; }
  /// The lowest chunk that has not come; for messages.
  uint64_t first_missing() const;
  /// Of a complete version.
  ImagePtr image() const { return image_; }

 private:
  enum class State : uint8_t { wanted, asked, here };
  WeightManifest manifest_;
  ImagePtr base_;
  std::shared_ptr<std::vector<std::byte>> image_;
  std::vector<State> states_;
  uint64_t next_ = 0;  // no chunk before it is wanted
  uint64_t missing_ = 0, outstanding_ = 0;
};

/// The weights of a complete image. Throws WeightWireError, naming the tensor, unless every fingerprint is the
/// manifest's.
std::shared_ptr<const SamplerWeights> assembled_weights(const WeightManifest& manifest,
                                                        std::span<const std::byte> image,
                                                        const TransformerConfig& config,
                                                        const kernels::NumericProfile& profile, const Device& device);

}  // namespace motley::actors
