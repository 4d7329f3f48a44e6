#include "algos/mismatch/operations.h"

#include <algorithm>

namespace motley::algos::mismatch {

using kernels::Accumulation;
using kernels::DType;
using kernels::Format;
using kernels::NumericProfile;
using kernels::Quantization;
using kernels::Scaling;

namespace {

Format format_of(DType type) {
  switch (type) {
    case DType::f64:
      return Format::fp64;
    case DType::bf16:
      return Format::bf16;
    case DType::f16:
      return Format::fp16;
    default:
      return Format::fp32;
  }
}

/// Inputs of products as the product itself changes them: in the output type they come as they are.
Quantization own_activation(const NumericProfile& profile) {
  const Quantization& how = profile.activation;
  const bool arrives_so = how.scaling == Scaling::none && how.format == format_of(profile.output);
  return arrives_so ? Quantization{Format::fp32, Scaling::none} : how;
}

/// Products in one chain; 0: all. Scales of blocks of 128 inputs are applied to sums of 128.
int64_t chain_length(const NumericProfile& profile) {
  const auto blocks = [](Scaling s) { return s == Scaling::block128x128 || s == Scaling::block1x128; };
  return blocks(profile.weight.scaling) || blocks(profile.activation.scaling) ? 128 : profile.k_tile;
}

bool is_fp8(const Quantization& how) {
  return (how.format == Format::e4m3 || how.format == Format::e5m2) && how.scaling != Scaling::mx32;
}

}  // namespace

const std::array<Operation, kOperations>& operations() {
  static const std::array<Operation, kOperations> all = [] {
    std::array<Operation, kOperations> list{};
    for (int i = 0; i < kOperations; ++i) list[static_cast<size_t>(i)] = static_cast<Operation>(i);
    return list;
  }();
  return all;
}

const char* operation_name(Operation operation) {
  static constexpr const char* kNames[] = {
      "embedding", "norm",     "q",    "k",  "v",    "rope", "kv cache", "attention scores", "softmax",     "attention",
      "o",         "residual", "gate", "up", "silu", "down", "head",     "reduction order",  "accumulation"};
  static_assert(std::size(kNames) == kOperations);
  return kNames[static_cast<size_t>(operation)];
}

bool is_projection(Operation operation) {
  switch (operation) {
    case Operation::q:
    case Operation::k:
    case Operation::v:
    case Operation::o:
    case Operation::gate:
    case Operation::up:
    case Operation::down:
      return true;
    default:
      return false;
  }
}

bool differs(Operation operation, const NumericProfile& a, const NumericProfile& b) {
  switch (operation) {
    case Operation::attention_scores:
    case Operation::softmax:
      return false;
    case Operation::kv_cache:
      return kv_rounding(a) != kv_rounding(b) || (kv_rounding(a) != Format::fp32 && a.kv_scale != b.kv_scale);
    case Operation::reduction_order:
      return chain_length(a) != chain_length(b);
    case Operation::accumulation:
      return a.accumulation != b.accumulation || (a.accumulation == Accumulation::hopper_fp8 && a.k_tile != b.k_tile);
    default:
      break;
  }
  if (a.output != b.output) return true;
  return is_projection(operation) && (a.weight != b.weight || own_activation(a) != own_activation(b));
}

NumericProfile product_profile(const NumericProfile& formats, const NumericProfile& order,
                               const NumericProfile& accumulation) {
  NumericProfile product = formats;
  product.output = DType::f32;
  product.activation = own_activation(formats);
  const bool limited =
      accumulation.accumulation == Accumulation::hopper_fp8 && is_fp8(formats.weight) && is_fp8(formats.activation);
  product.accumulation = limited ? Accumulation::hopper_fp8 : Accumulation::fp32;
  product.k_tile = limited ? accumulation.k_tile : chain_length(order);
  return product;
}

Format kv_rounding(const NumericProfile& profile) {
  const bool exact = profile.kv_cache == Format::fp32 || profile.kv_cache == Format::fp64 ||
                     profile.kv_cache == format_of(profile.output);
  return exact && profile.kv_scale == 1.0 ? Format::fp32 : profile.kv_cache;
}

Assignment::Assignment(int64_t layers)
    : layers_(layers), given_(static_cast<size_t>(layers + 1) * kOperations, false) {}

void Assignment::give(Operation operation) {
  for (int64_t layer = 0; layer <= layers_; ++layer) give(operation, layer);
}
void Assignment::give_layer(int64_t layer) {
  for (const Operation operation : operations()) give(operation, layer);
}
void Assignment::give_all() { std::fill(given_.begin(), given_.end(), true); }

}  // namespace motley::algos::mismatch
