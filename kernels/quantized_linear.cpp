#include "kernels/quantized_linear.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "kernels/parallel.h"
#include "kernels/philox.h"

namespace motley::kernels {
namespace {

constexpr int64_t kRowChunk = 256;  // rows whose decoded activations are held at a time

uint64_t mix_bytes(uint64_t hash, const void* data, size_t bytes) {
  hash = mix(hash, bytes);
  const auto* at = static_cast<const char*>(data);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash, word);
  }
  uint64_t rest = 0;
  if (bytes > 0) std::memcpy(&rest, at, bytes);
  return mix(hash, rest);
}

/// Of everything that the values depend on, the encoder's choices included.
uint64_t fingerprint_of(const QuantizedMatrix& m) {
  uint64_t hash = mix(static_cast<uint64_t>(m.rows), static_cast<uint64_t>(m.cols));
  hash = mix(hash, static_cast<uint64_t>(m.how.format) << 16 | static_cast<uint64_t>(m.how.scaling) << 8 |
                       static_cast<uint64_t>(m.how.four_over_six));
  hash = mix_bytes(hash, m.codes.data(), m.codes.size());
  hash = mix_bytes(hash, m.block_codes.data(), m.block_codes.size());
  return mix_bytes(hash, m.scales.data(), m.scales.size() * sizeof(float));
}

Format format_of(DType dtype) {
  return dtype == DType::bf16 ? Format::bf16 : dtype == DType::f16 ? Format::fp16 : Format::fp32;
}

std::unique_ptr<float[]> scratch(int64_t count) {
  return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count));
}

}  // namespace

QuantizedLinear::QuantizedLinear(std::span<const float> weights, int64_t outputs, int64_t inputs,
                                 const NumericProfile& profile, float shared_amax)
    : profile_(profile), outputs_(outputs), inputs_(inputs) {
  if (profile.output == DType::f64) throw std::invalid_argument("QuantizedLinear: no fp64 output");
  check_activation(profile.activation);
  QuantizedMatrix weight = quantize(weights, outputs, inputs, profile.weight, shared_amax);
  fingerprint_ = fingerprint_of(weight);
  std::vector<float> decoded(weights.size());
  decode_codes(weight, decoded);
  packed_ = pack(row_major(static_cast<const void*>(decoded.data()), DType::f32, outputs, inputs));
  switch (profile.weight.scaling) {
    case Scaling::tensor:
    case Scaling::nv16:
      alpha_ = weight.scales[0];
      break;
    case Scaling::channel:
      row_scales_ = std::move(weight.scales);
      break;
    case Scaling::block1x128:
      block_rows_ = 1;
      [[fallthrough]];
    case Scaling::block128x128:
      block_scales_ = std::move(weight.scales);
      break;
    default:
      break;
  }
  const Quantization& activation = profile.activation;
  if (activation.scaling == Scaling::block1x128 && block_scales_.empty()) {
    block_rows_ = std::max<int64_t>(1, outputs);
    block_scales_.assign(static_cast<size_t>((inputs + 127) / 128), 1.0f);
  }
  activations_as_they_are_ = activation.scaling == Scaling::none &&
                             (activation.format == Format::fp32 || activation.format == format_of(profile.output));
  row_factors_ = activation.scaling == Scaling::tensor || activation.scaling == Scaling::channel ||
                 activation.scaling == Scaling::nv16;
}

void QuantizedLinear::forward(const void* x, int64_t rows, void* y) const {
  const auto size = static_cast<int64_t>(dtype_size(profile_.output));
  for (int64_t first = 0; first < rows; first += kRowChunk) {
    forward_chunk(static_cast<const char*>(x) + first * inputs_ * size, std::min(kRowChunk, rows - first),
                  static_cast<char*>(y) + first * outputs_ * size);
  }
}

void QuantizedLinear::forward_chunk(const void* x, int64_t rows, void* y) const {
  const int64_t blocks = block_scales_.empty() ? 0 : (inputs_ + 127) / 128;
  const bool finish = row_factors_ || !row_scales_.empty();
  const auto activations = scratch(activations_as_they_are_ ? 0 : rows * inputs_);
  const auto a_scales = scratch(rows * blocks);
  const auto factors = scratch(row_factors_ ? rows : 0);
  const auto sums = scratch(finish && profile_.output != DType::f32 ? rows * outputs_ : 0);

  MatmulArgs args;
  args.packed = &packed_;
  args.alpha = alpha_;
  args.k_tile = profile_.k_tile;
  if (!block_scales_.empty()) {
    args.a_scales = a_scales.get();
    args.b_scales = block_scales_.data();
    args.b_scale_rows = block_rows_;
    args.k_tile = 128;
    if (profile_.activation.scaling != Scaling::block1x128) std::fill_n(a_scales.get(), rows * blocks, 1.0f);
  }
  visit_dtype(profile_.output, [&]<class T>(T) {
    args.a = row_major(x, profile_.output, rows, inputs_);
    if (!activations_as_they_are_) {
      parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* from = static_cast<const T*>(x) + r * inputs_;
          float* to = activations.get() + r * inputs_;
          for (int64_t i = 0; i < inputs_; ++i) to[i] = static_cast<float>(from[i]);
          const float factor = quantize_activation(to, inputs_, profile_.activation, a_scales.get() + r * blocks);
          if (row_factors_) factors[static_cast<size_t>(r)] = factor;
        }
      });
      args.a = row_major(static_cast<const void*>(activations.get()), DType::f32, rows, inputs_);
    }
    args.c = row_major(y, profile_.output, rows, outputs_);
    if (!finish) return cpu::matmul(args);
    float* finished = profile_.output == DType::f32 ? static_cast<float*>(y) : sums.get();
    args.c = row_major(static_cast<void*>(finished), DType::f32, rows, outputs_);
    cpu::matmul(args);
    parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* sum = finished + r * outputs_;
        T* out = static_cast<T*>(y) + r * outputs_;
        const float factor = row_factors_ ? factors[static_cast<size_t>(r)] : 1.0f;
        if (!row_scales_.empty()) {
          for (int64_t n = 0; n < outputs_; ++n) sum[n] *= row_scales_[static_cast<size_t>(n)];
        }
        for (int64_t n = 0; n < outputs_; ++n) out[n] = static_cast<T>(sum[n] * factor);
      }
    });
  });
}

}  // namespace motley::kernels
