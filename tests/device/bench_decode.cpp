// Tokens per second of the decoding engine, and the share of the memory's bandwidth that reading the weights takes:
// Qwen3-0.6B's sizes, random weights.
#include "app/bench.h"
#include "kernels/device_memory.h"
#include "tests/device/bench.h"
#include "tests/device/qwen3.h"

namespace motley::device_bench {
namespace {

/// Bytes of the weights that a decode step reads: all but the embedding, of which it reads a row (a tied head is read
/// as the head).
double weight_bytes(const SamplerWeights& weights) {
  const TransformerConfig& config = weights.config();
  double bytes = static_cast<double>(weights.packed_head().bytes());
  for (int64_t layer = 0; layer < config.layers; ++layer)
    for (int p = 0; p <= static_cast<int>(Projection::down); ++p)
      bytes += static_cast<double>(weights.projection(layer, static_cast<Projection>(p)).bytes());
  return bytes;
}

double seconds_of_step(const Setting& setting, const std::shared_ptr<const SamplerWeights>& weights, int64_t batch) {
  const int64_t prompt = setting.tiny ? 3 : 32, steps = setting.tiny ? 2 : 64;
  Engine engine(weights, {.max_sequences = batch, .max_prefill_rows = batch * prompt});
  for (int64_t s = 0; s < batch; ++s) {
    GenerateRequest request;
    request.id = static_cast<uint64_t>(s);
    for (int64_t i = 0; i < prompt; ++i)
      request.tokens.push_back(static_cast<int32_t>((i * 7919 + s * 104729) % weights->config().vocabulary));
    request.max_new_tokens = steps + 4;
    request.key = {1, kernels::Purpose::generate, request.id, 0};
    engine.submit(request);
  }
  for (int i = 0; i < 3; ++i) engine.step();  // the prompts, and what is made once
  const double begin = seconds_now();
  for (int64_t i = 0; i < steps; ++i) engine.step();
  return (seconds_now() - begin) / static_cast<double>(steps);
}

}  // namespace

void decode(const Setting& setting, const Report& report) {
  const TransformerConfig config = qwen3(setting.tiny);
  const Parameters masters = app::bench_parameters(config);
  for (const char* profile : {"bf16", "h200-bf16", "h100-fp8"}) {
    const auto weights =
        std::make_shared<const SamplerWeights>(config, masters, *kernels::find_profile(profile), 0, setting.device);
    for (const int64_t batch : setting.tiny ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 16, 64}) {
      Row row{"decode", std::string(profile) + ", batch " + std::to_string(batch)};
      row.seconds = seconds_of_step(setting, weights, batch);
      row.bytes = weight_bytes(*weights);
      row.tokens = static_cast<double>(batch);
      report(row);
    }
  }
}

}  // namespace motley::device_bench
