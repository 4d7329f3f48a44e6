#include "actors/warmstart.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/model_file.h"

namespace motley::actors {
namespace {

namespace fs = std::filesystem;
using Demonstration = algos::Learner::Demonstration;

Demonstration demonstration(const envs::Tokenizer& tokenizer, const std::string& prompt, const std::string& answer) {
  Demonstration out;
  out.tokens = tokenizer.encode(prompt);
  out.loss_mask.assign(out.tokens.size(), 0);
  for (const int32_t id : tokenizer.encode(answer)) out.tokens.push_back(id);
  out.tokens.push_back(tokenizer.eos());
  out.loss_mask.resize(out.tokens.size(), 1);
  return out;
}

/// {"prompt", "answer"} lines of a user's file.
std::vector<std::pair<std::string, std::string>> read_pairs(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw envs::TaskError(file + ": cannot be read (warmstart.data)");
  std::vector<std::pair<std::string, std::string>> pairs;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto where = fmt::format("{}:{}: ", file, number);
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object()) throw envs::TaskError(where + "not a JSON object; wanted {\"prompt\": ..., \"answer\": ...}");
    for (const char* key : {"prompt", "answer"})
      if (!row.contains(key) || !row[key].is_string())
        throw envs::TaskError(where + "no text under \"" + key + "\"; wanted {\"prompt\": ..., \"answer\": ...}");
    if (row["prompt"].get<std::string>().empty()) throw envs::TaskError(where + "the prompt is empty");
    pairs.emplace_back(row["prompt"], row["answer"]);
  }
  if (pairs.empty()) throw envs::TaskError(file + ": no pairs in it (warmstart.data)");
  return pairs;
}

/// The n-th demonstration: of the file, shuffled with repeats, or of the tasks' training problems. Numbers start far
/// from those that the run will draw.
class Source {
 public:
  Source(const Experiment& experiment, const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer)
      : tasks_(tasks), tokenizer_(tokenizer), random_({experiment.seed, kernels::Purpose::data, kWarmstart, 0}) {
    if (!experiment.warmstart.data.empty()) {
      pairs_ = read_pairs(experiment.warmstart.data);
      return;
    }
    for (const auto& entry : tasks.entries())
      if (!entry.task->has_demonstrations())
        throw envs::TaskError(
            "task " + entry.name +
            " has no demonstrations: give warmstart.data a JSONL of pairs, or set warmstart.steps = 0");
  }
  Demonstration next() {
    if (!pairs_.empty()) {
      const auto& [prompt, answer] = pairs_[random_.below(pairs_.size())];
      return demonstration(tokenizer_, prompt, answer);
    }
    const auto pick = tasks_.training(kFirst + count_++);
    return demonstration(tokenizer_, pick.problem.prompt, pick.problem.demonstration);
  }

 private:
  static constexpr uint64_t kWarmstart = 0x77617273746172ull, kFirst = uint64_t{1} << 40;
  const envs::TaskMix& tasks_;
  const envs::Tokenizer& tokenizer_;
  kernels::RandomStream random_;
  std::vector<std::pair<std::string, std::string>> pairs_;
  uint64_t count_ = 0;
};

/// Everything that the result depends on: configuration, starting weights, the first demonstrations, the build's
/// numerics.
std::string cache_key(const Experiment& experiment, const TransformerConfig& config, const Parameters& parameters,
                      Source source, const envs::Tokenizer& tokenizer) {
  const WarmstartOptions& w = experiment.warmstart;
  std::string text = fmt::format("2|{}|{}|{:a}|{}|{}|{}|{}|{}|{}|{:a}|{:a}|{}|{}|", w.steps, w.batch, w.lr,
                                 experiment.seed, experiment.trainer.profile, config.layers, config.width, config.heads,
                                 config.kv_heads, config.rope_theta, config.norm_eps, config.qk_norm, config.tied_head);
  for (const auto& [name, fingerprint] : parameters.fingerprints()) text += fmt::format("{}={:x};", name, fingerprint);
  for (const std::string& symbol : tokenizer.symbols()) text += symbol + '\x1f';
  for (int i = 0; i < 256; ++i) {
    for (const int32_t id : source.next().tokens) text += fmt::format("{},", id);
    text += '\n';
  }
  if (!w.data.empty()) {
    std::ifstream in(w.data, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(in), {});
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

bool load_cached(const fs::path& folder, const TransformerConfig& config, Parameters& parameters) {
  if (!fs::exists(folder / "model.safetensors")) return false;
  try {
    LoadedModel model = load_model(folder);
    if (model.config.resolved() != config.resolved()) return false;
    for (const std::string& name : parameters.names()) {
      const Tensor& from = model.parameters.at(name);
      std::copy_n(from.data<float>(), from.numel(), parameters.at(name).data<float>());
    }
    return true;
  } catch (const std::exception&) {
    return false;  // a damaged cache entry is made again
  }
}

void store(const fs::path& folder, const TransformerConfig& config, const Parameters& parameters) {
  const fs::path partial = folder.string() + fmt::format(".{}.partial", static_cast<int64_t>(::getpid()));
  fs::create_directories(partial);
  save_model(partial, config, parameters);
  std::error_code taken;
  fs::rename(partial, folder, taken);  // another run may have stored the same entry meanwhile
  if (taken) fs::remove_all(partial);
}

}  // namespace

bool warm_start(const Experiment& experiment, const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer,
                const TransformerConfig& config, Parameters& parameters,
                const std::function<void(int64_t, int64_t, double)>& progress, const std::function<bool()>& stop) {
  const WarmstartOptions& w = experiment.warmstart;
  if (w.steps == 0) return false;
  Source source(experiment, tasks, tokenizer);
  const fs::path folder =
      fs::path(experiment.run.dir) / ".warmstart" / cache_key(experiment, config, parameters, source, tokenizer);
  if (w.cache && load_cached(folder, config, parameters)) return true;

  algos::LearnerConfig settings = experiment.learner_config();
  settings.optimizer = {.lr = w.lr,
                        .beta2 = 0.99,
                        .clip_norm = 1.0,
                        .schedule = "cosine",
                        .warmup_steps = std::max<int64_t>(1, w.steps / 20),
                        .total_steps = w.steps};
  algos::Learner learner(config, parameters, settings);
  for (int64_t step = 1; step <= w.steps; ++step) {
    if (stop()) return false;
    std::vector<Demonstration> batch;
    for (int64_t i = 0; i < w.batch; ++i) batch.push_back(source.next());
    const algos::Metrics metrics = learner.supervised_step(batch);
    progress(step, w.steps, metrics.at("loss"));
  }
  if (w.cache) store(folder, config, parameters);
  return false;
}

}  // namespace motley::actors
