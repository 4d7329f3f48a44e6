#include "app/bench.h"
#include "app/input_error.h"
#include "app/schema.h"
#include "kernels/philox.h"

namespace motley::app {
namespace {

constexpr uint64_t kSeed = 1;

BenchShape shape(const char* name, TransformerConfig config, int64_t sequences, int64_t length) {
  config.max_positions = 65536 + 64;  // the longest context that is measured, and some tokens more
  return {name, config.resolved(), sequences, length};
}

}  // namespace

/// "1M": the layers of experiments/quickstart.toml. "135M": those of
/// SmolLM2-135M.
const std::vector<BenchShape>& bench_shapes() {
  static const std::vector<BenchShape> shapes{
      shape("1M", {.vocabulary = 2048, .layers = 4, .width = 128, .heads = 4, .kv_heads = 2, .ffn = 352}, 16, 128),
      shape("25M", {.vocabulary = 32000, .layers = 8, .width = 384, .heads = 6, .kv_heads = 2, .ffn = 1024}, 4, 256),
      shape("135M", {.vocabulary = 49152, .layers = 30, .width = 576, .heads = 9, .kv_heads = 3, .ffn = 1536}, 2, 256),
  };
  return shapes;
}

const BenchShape& find_shape(const std::string& name) {
  std::vector<std::string> names;
  for (const BenchShape& shape : bench_shapes()) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  throw InputError({"--shape " + name}, "there is no such shape", "allowed: " + join(names, ", "),
                   nearest_name(name, names));
}

const kernels::NumericProfile& find_bench_profile(const std::string& name) {
  if (const kernels::NumericProfile* profile = kernels::find_profile(name)) return *profile;
  const std::vector<std::string> names = profile_names();
  throw InputError({"--profile " + name}, "there is no such profile", "allowed: " + join(names, ", "),
                   nearest_name(name, names));
}

Parameters bench_parameters(const TransformerConfig& config) {
  Parameters parameters = Parameters::zeros(config);
  kernels::RandomStream random({kSeed, kernels::Purpose::init, 0});
  for (const std::string& name : parameters.names()) {
    Tensor& tensor = parameters.at(name);
    const bool matrix = tensor.shape().size() == 2;
    for (float& value : tensor.span<float>())
      value = matrix ? 0.02f * (static_cast<float>(random.below(4096)) / 2048.0f - 1.0f) : 1.0f;
  }
  return parameters;
}

std::vector<algos::Learner::Demonstration> bench_batch(int64_t sequences, int64_t length, int64_t vocabulary) {
  kernels::RandomStream random({2, kernels::Purpose::data, 0});
  std::vector<algos::Learner::Demonstration> batch(static_cast<size_t>(sequences));
  for (auto& sequence : batch) {
    for (int64_t i = 0; i < length; ++i) {
      sequence.tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary))));
      sequence.loss_mask.push_back(i > 0);
    }
  }
  return batch;
}

}  // namespace motley::app
