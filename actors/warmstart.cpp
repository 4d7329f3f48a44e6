#include "actors/warmstart.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/parallel.h"
#include "tensor/model_file.h"

namespace motley::actors {
namespace {

namespace fs = std::filesystem;
using Demonstration = algos::Learner::Demonstration;

/// What the turns of an episode read, and what is to be answered.
using Turns = std::vector<std::pair<std::string, std::string>>;

/// Throws std::invalid_argument: a character that no symbol covers, or no room for all of it.
Demonstration demonstration(const envs::Tokenizer& tokenizer, int64_t max_positions, const Turns& turns) {
  Demonstration out;
  const auto append = [&](const std::string& text) {
    for (const int32_t id : tokenizer.encode(text)) out.tokens.push_back(id);
  };
  for (const auto& [prompt, answer] : turns) {
    append(prompt);
    out.loss_mask.resize(out.tokens.size(), 0);
    append(answer);
    out.tokens.push_back(tokenizer.eos());
    out.loss_mask.resize(out.tokens.size(), 1);
  }
  if (static_cast<int64_t>(out.tokens.size()) > max_positions)
    throw std::invalid_argument(fmt::format("a demonstration of {} tokens is longer than model.max_positions, {}",
                                            out.tokens.size(), max_positions));
  return out;
}

/// {"prompt", "answer"} lines of a user's file.
std::vector<std::pair<std::string, std::string>> read_pairs(const std::string& file, const envs::Tokenizer& tokenizer,
                                                            int64_t max_positions) {
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
    try {
      demonstration(tokenizer, max_positions, {pairs.back()});
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError(where + error.what());
    }
  }
  if (pairs.empty()) throw envs::TaskError(file + ": no pairs in it (warmstart.data)");
  return pairs;
}

/// The n-th demonstration: of the file, shuffled with repeats, or of the tasks' training problems. Numbers start far
/// from those that the run will draw.
class Source {
 public:
  Source(const Experiment& experiment, const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer,
         int64_t max_positions)
      : tasks_(tasks),
        tokenizer_(tokenizer),
        max_positions_(max_positions),
        random_({experiment.start_seed(), kernels::Purpose::data, 0, 0}) {
    if (!experiment.warmstart.data.empty()) {
      pairs_ = read_pairs(experiment.warmstart.data, tokenizer, max_positions);
      return;
    }
    for (const auto& entry : tasks.entries())
      if (!entry.task->has_demonstrations())
        throw envs::TaskError(
            "task " + entry.name +
            " has no demonstrations: give warmstart.data a JSONL of pairs, or set warmstart.steps = 0");
  }
  Demonstration next() {
    if (!pairs_.empty()) return demonstration(tokenizer_, max_positions_, {pairs_[random_.below(pairs_.size())]});
    const auto pick = tasks_.training(count_++);
    Turns turns{{pick.problem.prompt, pick.problem.demonstration}};
    for (const envs::Problem& question : pick.problem.more) turns.emplace_back(question.prompt, question.demonstration);
    try {
      return demonstration(tokenizer_, max_positions_, turns);
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError("task " + tasks_.entries()[pick.entry].name + ": " + error.what());
    }
  }

 private:
  const envs::TaskMix& tasks_;
  const envs::Tokenizer& tokenizer_;
  int64_t max_positions_;
  kernels::RandomStream random_;
  std::vector<std::pair<std::string, std::string>> pairs_;
  uint64_t count_ = 0;
};

/// Everything that the result depends on: configuration, starting weights, the first demonstrations, the build's
/// numerics.
std::string cache_key(const Experiment& experiment, const TransformerConfig& config, const Parameters& parameters,
                      Source source, const envs::Tokenizer& tokenizer) {
  const WarmstartOptions& w = experiment.warmstart;
  std::string text =
      fmt::format("2|{}|{}|{:a}|{}|{}|{}|{}|{}|{}|{:a}|{:a}|{}|{}|", w.steps, w.batch, w.lr, experiment.start_seed(),
                  experiment.trainer.profile, config.layers, config.width, config.heads, config.kv_heads,
                  config.rope_theta, config.norm_eps, config.qk_norm, config.tied_head);
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
  Source source(experiment, tasks, tokenizer, config.max_positions);
  const fs::path folder =
      fs::path(experiment.run.dir) / ".warmstart" / cache_key(experiment, config, parameters, source, tokenizer);
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
  const auto train = [&](const std::vector<Demonstration>& batch) {
    const kernels::ComputeLease lease(compute);
    return learner.supervised_step(batch);
  };
  for (int64_t step = 1; step <= w.steps; ++step) {
    if (stop()) return false;
    std::vector<Demonstration> batch;
    for (int64_t i = 0; i < w.batch; ++i) batch.push_back(source.next());
    progress(step, w.steps, train(batch).at("loss"));
  }
  if (w.cache) store(folder, config, parameters);
  return false;
}

}  // namespace motley::actors
