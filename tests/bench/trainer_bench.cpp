// Times the learner's supervised step (forward, cross-entropy on all tokens, backward, AdamW) of Llama shapes, one
// thread. Serves tests/bench/peers/trainer_torch.py, which runs the same step in PyTorch: it sends one line "step" per
// step wanted and reads back one JSON line, so that the two take turns on the same machine.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "algos/learner.h"
#include "kernels/parallel.h"
#include "kernels/philox.h"
#include "tensor/transformer.h"

namespace {

using namespace motley;

struct Options {
  std::string model = "1m", dtype = "fp32";
  int64_t sequences = 16, length = 128;
  bool checkpoint = false;
};

TransformerConfig shape_of(const std::string& name) {
  TransformerConfig config;
  if (name == "1m") {
    config = {.vocabulary = 2048, .layers = 4, .width = 128, .heads = 4, .kv_heads = 2, .ffn = 352};
  } else if (name == "25m") {
    config = {.vocabulary = 32000, .layers = 8, .width = 384, .heads = 6, .kv_heads = 2, .ffn = 1024};
  } else if (name == "135m") {
    config = {.vocabulary = 49152, .layers = 30, .width = 576, .heads = 9, .kv_heads = 3, .ffn = 1536};
  } else {
    throw std::invalid_argument("model must be 1m, 25m or 135m: got " + name);
  }
  config.max_positions = 4096;
  return config.resolved();
}

/// Cheap numbers of the right size: their values do not matter to the time, as long as nothing overflows.
Parameters initial(const TransformerConfig& config) {
  Parameters parameters = Parameters::zeros(config);
  kernels::RandomStream random({1, kernels::Purpose::init, 0});
  for (const std::string& name : parameters.names()) {
    Tensor& tensor = parameters.at(name);
    const bool matrix = tensor.shape().size() == 2;
    for (float& value : tensor.span<float>()) {
      value = matrix ? 0.02f * (static_cast<float>(random.below(4096)) / 2048.0f - 1.0f) : 1.0f;
    }
  }
  return parameters;
}

algos::LearnerConfig learner_config(const Options& options) {
  algos::LearnerConfig config;
  const kernels::NumericProfile* profile = kernels::find_profile(options.dtype);
  if (profile == nullptr) throw std::invalid_argument("no profile is called " + options.dtype);
  config.profile = *profile;
  config.kv_format = profile->kv_cache;
  config.micro_batch_tokens = options.sequences * options.length;
  config.checkpoint_activations = options.checkpoint;
  config.optimizer.lr = 1e-4;
  return config;
}

std::vector<algos::Learner::Demonstration> batch_of(const Options& options, int64_t vocabulary) {
  kernels::RandomStream random({2, kernels::Purpose::data, 0});
  std::vector<algos::Learner::Demonstration> batch(static_cast<size_t>(options.sequences));
  for (auto& sequence : batch) {
    for (int64_t i = 0; i < options.length; ++i) {
      sequence.tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary))));
      sequence.loss_mask.push_back(i > 0);
    }
  }
  return batch;
}

/// A line of /proc/self/status, in bytes.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--model") {
      options.model = value;
    } else if (key == "--dtype") {
      options.dtype = value;
    } else if (key == "--sequences") {
      options.sequences = std::stoll(value);
    } else if (key == "--length") {
      options.length = std::stoll(value);
    } else if (key == "--checkpoint-activations") {
      options.checkpoint = value == "true";
    } else {
      throw std::invalid_argument("unknown option " + key);
    }
  }
  return options;
}

int serve(const Options& options) {
  kernels::set_compute_threads(1);
  const int64_t before = status_bytes("VmRSS");
  const TransformerConfig config = shape_of(options.model);
  Parameters parameters = initial(config);
  algos::Learner learner(config, parameters, learner_config(options));
  const auto batch = batch_of(options, config.vocabulary);
  std::printf("{\"parameters\": %lld}\n", static_cast<long long>(parameters.count()));
  std::fflush(stdout);
  bool warm = false;
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = learner.supervised_step(batch).at("loss");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("{\"seconds\": %.6f, \"loss\": %.6f, \"peak_bytes\": %lld}\n", seconds.count(), loss,
                static_cast<long long>(status_bytes("VmHWM") - before));
    std::fflush(stdout);
    if (!std::exchange(warm, true)) reset_peak();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return serve(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer_bench: %s\n", error.what());
    return 2;
  }
}
