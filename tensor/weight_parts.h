// What a sampler's weights consist of, as bytes that do not depend on the device: what travels between processes. The
// parts follow from the model and the profile alone, so that whoever receives them knows what must come.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/transformer.h"

namespace motley {

enum class WeightKind : uint8_t {
  plain,      // elements of the profile's output type
  quantized,  // the arrays of kernels::QuantizedMatrix: codes, block scales, fp32 scales, one behind the other
};

/// A tensor in the image of a SamplerWeights: bytes [offset, offset + bytes), little endian, with no gap to the next.
struct WeightPart {
  std::string name;  // as in Parameters
  WeightKind kind = WeightKind::plain;
  Shape shape;
  uint64_t offset = 0, bytes = 0;
  bool operator==(const WeightPart&) const = default;
};

/// In the order of Parameters::layout. Throws std::invalid_argument for an impossible config or profile, and for
/// weights of more than 2^48 bytes.
std::vector<WeightPart> weight_parts(const TransformerConfig& config, const kernels::NumericProfile& profile);
/// Of all parts.
uint64_t image_bytes(const std::vector<WeightPart>& parts);

/// One number over all per-tensor fingerprints.
uint64_t weights_digest(const std::map<std::string, uint64_t>& fingerprints);

}  // namespace motley
