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

#include "app/bench.h"
#include "kernels/parallel.h"

namespace {

using namespace motley;

struct Options {
  std::string model = "1M", dtype = "fp32";
  int64_t sequences = 16, length = 128;
  bool checkpoint = false;
};

algos::LearnerConfig learner_config(const Options& options) {
  algos::LearnerConfig config;
  config.profile = app::find_bench_profile(options.dtype);
  config.kv_format = config.profile.kv_cache;
  config.micro_batch_tokens = options.sequences * options.length;
  config.checkpoint_activations = options.checkpoint;
  config.optimizer.lr = 1e-4;
  return config;
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
  const double before = app::process_bytes("VmRSS");
  TransformerConfig config = app::find_shape(options.model).config;
  config.max_positions = options.length;
  Parameters parameters = app::bench_parameters(config);
  algos::Learner learner(config, parameters, learner_config(options));
  const auto batch = app::bench_batch(options.sequences, options.length, config.vocabulary);
  std::printf("{\"parameters\": %lld}\n", static_cast<long long>(parameters.count()));
  std::fflush(stdout);
  bool warm = false;
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = learner.supervised_step(batch).at("loss");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("{\"seconds\": %.6f, \"loss\": %.6f, \"peak_bytes\": %.0f}\n", seconds.count(), loss,
                app::process_bytes("VmHWM") - before);
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
