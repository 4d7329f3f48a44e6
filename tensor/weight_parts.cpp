#include "tensor/weight_parts.h"

#include <stdexcept>

#include "kernels/philox.h"
#include "kernels/quantize.h"

namespace motley {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 48;

uint64_t quantized_bytes(const kernels::Quantization& how, const Shape& shape) {
  const kernels::QuantizedSizes sizes = kernels::quantized_sizes(how, shape[0], shape[1]);
  return sizes.codes + sizes.block_codes + sizes.scales * sizeof(float);
}

}  // namespace

std::vector<WeightPart> weight_parts(const TransformerConfig& given, const kernels::NumericProfile& profile) {
  const TransformerConfig config = given.resolved();
  kernels::check_quantization(profile.weight);
  std::map<std::string, WeightKind> kinds;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    for (const Projection p : kProjections) kinds[projection_name(layer, p)] = WeightKind::quantized;
  std::vector<WeightPart> parts;
  uint64_t offset = 0;
  for (const auto& [name, shape] : Parameters::layout(config)) {
    const auto found = kinds.find(name);
    WeightPart part{name, found == kinds.end() ? WeightKind::plain : found->second, shape, offset, 0};
    uint64_t elements = 1;
    for (const int64_t size : shape) {
      if (size != 0 && elements > kMostBytes / static_cast<uint64_t>(size))
        throw std::invalid_argument("weights: " + name + " is larger than 2^48 bytes");
      elements *= static_cast<uint64_t>(size);
    }
    part.bytes = part.kind == WeightKind::quantized ? quantized_bytes(profile.weight, shape)
                                                    : elements * kernels::dtype_size(profile.output);
    offset += part.bytes;
    if (offset > kMostBytes) throw std::invalid_argument("weights: larger than 2^48 bytes");
    parts.push_back(std::move(part));
  }
  return parts;
}

uint64_t image_bytes(const std::vector<WeightPart>& parts) {
  return parts.empty() ? 0 : parts.back().offset + parts.back().bytes;
}

uint64_t weights_digest(const std::map<std::string, uint64_t>& fingerprints) {
  uint64_t digest = 0;
  for (const auto& [name, fingerprint] : fingerprints) {
    for (const char c : name) digest = kernels::mix(digest, static_cast<uint8_t>(c));
    digest = kernels::mix(digest, fingerprint);
  }
  return digest;
}

}  // namespace motley
