#include "actors/warmstart.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "actors/demonstrations.h"
#include "kernels/parallel.h"
#include "tensor/model_file.h"

namespace motley::actors {
namespace {

namespace fs = std::filesystem;

/// Everything that the result depends on: configuration, starting weights, what the demonstrations are, the build's
/// numerics.
std::string cache_key(const Experiment& experiment, const TransformerConfig& config, const Parameters& parameters,
                      const std::string& demonstrations, const envs::Tokenizer& tokenizer) {
  const WarmstartOptions& w = experiment.warmstart;
  std::string text =
      fmt::format("3|{}|{}|{:a}|{}|{}|{}|{}|{}|{}|{:a}|{:a}|{}|{}|", w.steps, w.batch, w.lr, experiment.start_seed(),
                  experiment.trainer.profile, config.layers, config.width, config.heads, config.kv_heads,
                  config.rope_theta, config.norm_eps, config.qk_norm, config.tied_head);
  for (const auto& [name, fingerprint] : parameters.fingerprints()) text += fmt::format("{}={:x};", name, fingerprint);
  for (const std::string& symbol : tokenizer.symbols()) text += symbol + '\x1f';
  text += demonstrations;
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

bool load_cached(const fs::path& folder, const TransformerConfig& config, Parameters& parameters) {
  if (!fs::exists(folder / "model.safetensors")) return false;
  try {
    LoadedModel model = load_model(folder);
    model.config.max_positions = config.max_positions;  // no weight depends on it
    if (model.config.resolved() != config.resolved()) return false;
    parameters = model.parameters.clone(parameters.device());
    return true;
  } catch (const std::exception&) {
    return false;  // a damaged cache entry is made again
  }
}

void store(const fs::path& folder, const TransformerConfig& config, const Parameters& parameters) {
  const fs::path partial = folder.string() + fmt::format(".{}.partial", static_cast<int64_t>(::getpid()));
  std::error_code taken;
  fs::create_directories(partial);
  try {
    save_model(partial, config, parameters);
  } catch (...) {
    fs::remove_all(partial, taken);
    throw;
  }
  fs::remove_all(folder, taken);       // an entry that could not be loaded
  fs::rename(partial, folder, taken);  // another run may have stored the same entry meanwhile
  if (taken) fs::remove_all(partial);
}

}  // namespace

bool warm_start(const Experiment& experiment, const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer,
                const TransformerConfig& config, Parameters& parameters,
                const std::function<void(int64_t, int64_t, double)>& progress, const std::function<bool()>& stop) {
  const WarmstartOptions& w = experiment.warmstart;
  if (w.steps == 0) return false;
  Demonstrations demonstrations(experiment, tasks, tokenizer, config.max_positions);
  const auto identity = demonstrations.identity(stop);
  if (!identity) return false;
  const fs::path folder =
      fs::path(experiment.run.dir) / ".warmstart" / cache_key(experiment, config, parameters, *identity, tokenizer);
  if (w.cache && load_cached(folder, config, parameters)) return true;

  algos::LearnerConfig settings = experiment.learner_config();
  settings.optimizer = {.lr = w.lr,
                        .beta2 = 0.99,
                        .clip_norm = 1.0,
                        .schedule = "cosine",
                        .warmup_steps = std::min(std::max<int64_t>(1, w.steps / 20), w.steps - 1),
                        .total_steps = w.steps};
  algos::Learner learner(config, parameters, settings);
  kernels::ComputeClient compute(kernels::ComputeSide::trainer);
  const auto train = [&](const std::vector<Demonstrations::Demonstration>& batch) {
    const kernels::ComputeLease lease(compute);
    return learner.supervised_step(batch);
  };
  for (int64_t step = 1; step <= w.steps; ++step) {
    if (stop()) return false;
    std::vector<Demonstrations::Demonstration> batch;
    for (int64_t i = 0; i < w.batch; ++i) {
      auto next = demonstrations.next(stop);
      if (!next) return false;
      batch.push_back(std::move(*next));
    }
    progress(step, w.steps, train(batch).at("loss"));
  }
  if (w.cache) store(folder, config, parameters);
  return false;
}

}  // namespace motley::actors
