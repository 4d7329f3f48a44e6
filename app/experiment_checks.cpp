// Checks that concern several keys at once, each with its reason. The single keys' ranges are in app/schema_fields.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "actors/checkpoint.h"
#include "algos/advantage.h"
#include "app/autoscaler_fields.h"
#include "app/devices.h"
#include "app/experiment_toml.h"
#include "app/schema.h"

namespace motley::app {
namespace {

constexpr int64_t kSlots = 256;  // of a replica whose group does not say

/// Groups without max_sequences get what run.concurrency still needs, at least kSlots.
void resolve_slots(Experiment& e, const KeyPositions& keys) {
  int64_t missing = e.run.concurrency, open_replicas = 0;
  const auto given = [&](size_t i) { return keys.given(fmt::format("samplers.{}.max_sequences", i)); };
  for (size_t i = 0; i < e.samplers.size(); ++i) {
    const SamplerGroupOptions& group = e.samplers[i];
    if (given(i))
      missing -= group.max_sequences * group.replicas;
    else
      open_replicas += group.replicas;
  }
  for (size_t i = 0; i < e.samplers.size(); ++i) {
    if (given(i)) continue;
    const int64_t sharers = std::max<int64_t>(1, open_replicas);
    const int64_t needed = (std::max<int64_t>(missing, 0) + sharers - 1) / sharers;
    e.samplers[i].max_sequences = std::max(kSlots, needed);
  }
}

void check_model(const Experiment& e, const KeyPositions& keys) {
  const TransformerConfig& c = e.model.config;
  if (!e.model.path.empty()) {
    for (const std::string& key : section_keys("model")) {
      if (key != "path" && keys.given("model." + key)) {
        throw InputError(keys.of("model." + key), fmt::format("model.{} together with model.path", key),
                         "the sizes are those of the checkpoint: leave one of the two out");
      }
    }
    try {
      actors::find_checkpoint(e.model.path);
    } catch (const actors::CheckpointError& error) {
      throw InputError(keys.of("model.path"), error.what(), "paths are relative to the working directory");
    }
    return;
  }
  if (c.heads % c.kv_heads != 0) {
    throw InputError(keys.of(keys.given("model.kv_heads") ? "model.kv_heads" : "model.heads"),
                     fmt::format("{} heads cannot share {} kv_heads evenly", c.heads, c.kv_heads),
                     "model.heads must be a multiple of model.kv_heads");
  }
  if (c.head_dim == 0 && c.width % c.heads != 0) {
    throw InputError(keys.of(keys.given("model.width") ? "model.width" : "model.heads"),
                     fmt::format("a width of {} cannot be split over {} heads", c.width, c.heads),
                     "model.width must be a multiple of model.heads, or model.head_dim be given");
  }
  const int64_t head_dim = c.head_dim == 0 ? c.width / c.heads : c.head_dim;
  if (head_dim % 2 != 0) {
    throw InputError(keys.of(keys.given("model.head_dim") ? "model.head_dim" : "model.width"),
                     fmt::format("a head of width {} is odd", head_dim),
                     "rotary embedding turns pairs: it must be even");
  }
  if (e.sampling.max_tokens >= c.max_positions) {
    throw InputError(keys.of(keys.given("model.max_positions") ? "model.max_positions" : "sampling.max_tokens"),
                     fmt::format("replies of {} tokens do not fit into {} positions with a prompt before them",
                                 e.sampling.max_tokens, c.max_positions),
                     "sampling.max_tokens must be below model.max_positions");
  }
}

int record_rank(RecordKind kind) {
  switch (kind) {
    case RecordKind::sampled:
      return 0;
    case RecordKind::candidates:
    case RecordKind::top_k:
      return 1;
    case RecordKind::full:
      return 2;
  }
  return 0;
}

void check_record(const Experiment& e, const KeyPositions& keys) {
  const std::string& record = e.sampling.record;
  if (record == "auto") return;
  const bool truncated = e.sampling.top_p < 1.0 || e.sampling.top_k > 0;
  if (truncated) {
    throw InputError(keys.of("sampling.record"),
                     fmt::format("sampling.record = \"{}\" with a truncated distribution (top_p {}, top_k {})", record,
                                 e.sampling.top_p, e.sampling.top_k),
                     "the trainer must replay the candidate set, and that is what is recorded: allowed is \"auto\"");
  }
  const RecordKind needed = e.needed_records();
  const int rank = record == "sampled" ? 0 : record == "top_k" ? 1 : 2;
  if (rank < record_rank(needed)) {
    throw InputError(keys.of("sampling.record"),
                     fmt::format("sampling.record = \"{}\" is too little for correction '{}'{}", record,
                                 e.algo.correction, e.probe.drift_every > 0 ? " or one of probe.drift" : ""),
                     record_rank(needed) == 2 ? "it needs the full distribution: allowed are \"auto\", \"full\""
                                              : "it needs more than the drawn token: allowed are \"auto\", \"top_k\", "
                                                "\"full\"");
  }
}

/// p / pi_old is 1 on the first optimizer step of a batch: a clip that sees no other step would do nothing, silently.
void check_clip(const Experiment& e, const KeyPositions& keys, const algos::Correction& correction) {
  if (e.algo.minibatches * e.algo.epochs > 1 || !correction.clips_against_old()) return;
  throw InputError(
      keys.of("algo.correction"),
      fmt::format("the clip of correction '{}' can never bind: with one optimizer step per batch "
                  "p / pi_old is 1",
                  e.algo.correction),
      "allowed: algo.minibatches or algo.epochs above 1; a clip on p / q (anchor = \"sampler\" of ppo-clip, "
      "gspo, cispo); a correction without a clip on pi_old, such as tis, mis, seq-mis or token-is");
}

void check_correction(const Experiment& e, const KeyPositions& keys) {
  if (e.algo.correction.empty()) {
    throw InputError(keys.of("algo.correction"), "asynchronous sampling with no algo.correction",
                     "plain GRPO must be asked for by name: correction = \"grpo\"; allowed: names of `motley list "
                     "corrections` and their sums");
  }
  try {
    check_clip(e, keys, *algos::make_correction(e.algo.correction, e.correction_parameters()));
  } catch (const std::invalid_argument& error) {
    throw InputError(keys.of("algo.parameters"), error.what());
  }
  if (e.algo.minibatches > e.algo.prompts) {
    throw InputError(keys.of("algo.minibatches"),
                     fmt::format("{} minibatches of {} prompts", e.algo.minibatches, e.algo.prompts),
                     "groups are never split: algo.minibatches is at most algo.prompts");
  }
  check_record(e, keys);
}

void check_probe(const Experiment& e, const KeyPositions& keys) {
  if (e.probe.drift_every == 0) return;
  for (const std::string& name : e.probe.drift) {
    try {
      algos::make_correction(name);
    } catch (const std::invalid_argument& error) {
      throw InputError(keys.of("probe.drift"), error.what());
    }
  }
  if (e.algo.prompts < 2) {
    throw InputError(keys.of(keys.given("probe.drift_every") ? "probe.drift_every" : "algo.prompts"),
                     "a drift probe with one prompt per update",
                     "it compares the gradients of two halves of the prompts: algo.prompts must be at least 2");
  }
}

void check_comparison(const Experiment& e, const KeyPositions& keys) {
  const AlgoOptions& algo = e.algo;
  const bool compares = algos::compares_group(algo.advantage);
  if (compares && algo.group_size < 2) {
    throw InputError(keys.of("algo.group_size"), fmt::format("algo.group_size is the integer {}", algo.group_size),
                     fmt::format("advantage \"{}\" compares a sample with the others of its group: at least 2; "
                                 "\"reinforce\" allows 1",
                                 algo.advantage));
  }
  if (!compares && algo.drop_equal_groups) {
    throw InputError(keys.of("algo.drop_equal_groups"), "algo.drop_equal_groups with advantage \"reinforce\"",
                     "a group of equal rewards teaches as well as any other there");
  }
  if (algo.advantage_level == "turn" && !algos::compares_returns(algo.advantage)) {
    throw InputError(keys.of("algo.advantage_level"),
                     fmt::format("algo.advantage_level = \"turn\" with advantage \"{}\"", algo.advantage),
                     "returns of turns are compared by \"dr_grpo\", \"grpo\" and \"rloo\"");
  }
  if (algo.denominator == "renormalized" && algo.reduction == "constant") {
    throw InputError(keys.of("algo.denominator"), "algo.denominator = \"renormalized\" with reduction \"constant\"",
                     "that reduction counts no tokens: allowed is \"kept\"");
  }
  if (algo.advantage == "maxrl" && (algo.overlong == "penalty" || algo.kl == "k1")) {
    const std::string key = algo.kl == "k1" ? "algo.kl" : "algo.overlong";
    throw InputError(keys.of(key), "advantage \"maxrl\" with a term that can make rewards negative",
                     "it divides by the mean reward, which must not be negative");
  }
  if (algo.overlong == "penalty" && algo.overlong_tokens > e.sampling.max_tokens) {
    throw InputError(
        keys.of("algo.overlong_tokens"),
        fmt::format("a penalty over the last {} of {} tokens", algo.overlong_tokens, e.sampling.max_tokens),
        "algo.overlong_tokens must be at most sampling.max_tokens");
  }
}

void check_kl(const Experiment& e, const KeyPositions& keys) {
  const AlgoOptions& algo = e.algo;
  if (algo.kl == "none") {
    for (const char* key : {"algo.kl_coefficient", "algo.reference"}) {
      const bool set = key == std::string_view("algo.reference") ? !algo.reference.empty() : algo.kl_coefficient > 0.0;
      if (set) throw InputError(keys.of(key), fmt::format("{} without a KL term", key), "set algo.kl, or leave it out");
    }
    return;
  }
  if (algo.kl_coefficient <= 0.0) {
    throw InputError(keys.of(keys.given("algo.kl_coefficient") ? "algo.kl_coefficient" : "algo.kl"),
                     fmt::format("algo.kl = \"{}\" with a coefficient of 0", algo.kl),
                     "algo.kl_coefficient must be above 0");
  }
  if (algo.reference.empty()) return;
  try {
    actors::find_checkpoint(algo.reference);
  } catch (const actors::CheckpointError& error) {
    throw InputError(keys.of("algo.reference"), error.what(), "paths are relative to the working directory");
  }
}

void check_routing(const Experiment& e, const KeyPositions& keys) {
  if (e.run.routing == "capacity") return;
  const std::string found = fmt::format("run.routing = \"{}\" ", e.run.routing);
  if (!e.run.async) {
    throw InputError(keys.of("run.routing"), found + "in lock-step",
                     "there an episode's group follows from its number alone: allowed is \"capacity\"");
  }
  for (size_t i = 0; i < e.samplers.size(); ++i) {
    if (!e.samplers[i].capacity) continue;
    throw InputError(keys.of(fmt::format("samplers.{}.capacity", i)), "a fixed share with " + found,
                     "only run.routing = \"capacity\" looks at shares");
  }
}

void check_fleet(const Experiment& e, const KeyPositions& keys) {
  check_routing(e, keys);
  if (e.run.learner == "joins" && !e.run.async)
    throw InputError(keys.of("run.learner"), "run.learner = \"joins\" in lock-step",
                     "a learner joins asynchronous runs only: set run.async = true, or run.learner = \"here\"");
  int64_t slots = 0;
  bool grows = e.autoscaler.enabled;  // or by samplers that join: what waits for a slot waits in the router
  for (size_t i = 0; i < e.samplers.size(); ++i) {
    slots += e.samplers[i].max_sequences * e.samplers[i].replicas;
    grows = grows || e.samplers[i].replicas == 0;
    if (e.samplers[i].replicas == 0 && !e.run.async)
      throw InputError(keys.of(fmt::format("samplers.{}.replicas", i)), "a group without replicas in lock-step",
                       "samplers join asynchronous runs only: set run.async = true, or replicas to at least 1");
    const std::string path = fmt::format("samplers.{}.staleness", i);
    if (e.samplers[i].staleness && e.run.async) {
      throw InputError(keys.of(path), "imposed staleness in an asynchronous run",
                       "there it comes about by itself: set run.async = false");
    }
  }
  if (!e.run.async) return;
  const int64_t batch = e.algo.prompts * e.algo.group_size;
  if (e.run.concurrency < batch) {
    throw InputError(keys.of("run.concurrency"),
                     fmt::format("a concurrency of {} is below one batch of {} x {} = {} episodes", e.run.concurrency,
                                 e.algo.prompts, e.algo.group_size, batch),
                     fmt::format("no batch could ever be complete: at least {}", batch));
  }
  if (slots < e.run.concurrency && !grows) {
    const std::string first = "samplers.0.max_sequences";
    throw InputError(
        keys.of(keys.given("run.concurrency") ? "run.concurrency" : first),
        fmt::format("the groups hold {} sequences together, run.concurrency is {}", slots, e.run.concurrency),
        "the sum of max_sequences x replicas must be at least run.concurrency");
  }
}

void check_eval(const Experiment& e, const KeyPositions& keys) {
  const int64_t largest = *std::max_element(e.eval.k.begin(), e.eval.k.end());
  if (e.eval.samples < largest) {
    throw InputError(keys.of("eval.samples"), fmt::format("pass@{} of {} samples", largest, e.eval.samples),
                     "eval.samples must be at least the largest k");
  }
}

void check_schedule(const Experiment& e, const KeyPositions& keys) {
  if (e.trainer.schedule == "constant" || e.trainer.warmup_updates < e.run.updates) return;
  throw InputError(keys.of(keys.given("trainer.warmup_updates") ? "trainer.warmup_updates" : "run.updates"),
                   fmt::format("a warm-up of {} updates in a run of {}", e.trainer.warmup_updates, e.run.updates),
                   fmt::format("schedule \"{}\" falls after the warm-up: trainer.warmup_updates must be below "
                               "run.updates",
                               e.trainer.schedule));
}

/// `known`: the sets that the tasks name.
void check_sets(const Experiment& e, const std::set<std::string>& known, const KeyPositions& keys) {
  const std::vector<std::string> profiles = profile_names();
  for (const std::string& set : e.eval.sets) {
    if (std::find(profiles.begin(), profiles.end(), set) != profiles.end())
      throw InputError(keys.of("eval.sets"), fmt::format("a held-out set named '{}', as a numeric profile is", set),
                       "metrics could not tell them apart: give the set another name");
    if (known.contains(set)) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    throw InputError(keys.of("eval.sets"), fmt::format("no held-out problem is in a set named '{}'", set),
                     "there are: " + join(names, ", "), nearest_name(set, names));
  }
}

void require_device(const std::string& name, const std::string& key, const KeyPositions& keys) {
  const std::string absence = absence_of(kernels::parse_device(name));
  if (absence.empty()) return;
  throw InputError(keys.of(key), fmt::format("{} = \"{}\", and {}", key, name, absence), kDeviceHint);
}

}  // namespace

void resolve_experiment(Experiment& e, const KeyPositions& keys) {
  if (e.algo.correction.empty() && !e.run.async) {
    e.algo.correction = "grpo";
    e.algo.parameters = algos::default_parameters("grpo");
  }
  resolve_autoscaler(e, keys);
  resolve_slots(e, keys);
  if (!keys.given("algo.overlong_tokens")) e.algo.overlong_tokens = std::max<int64_t>(1, e.sampling.max_tokens / 5);
  if (!keys.given("eval.samples")) {
    e.eval.samples = std::max(e.eval.samples, *std::max_element(e.eval.k.begin(), e.eval.k.end()));
  }
}

void check_devices(const Experiment& experiment, const KeyPositions& keys) {
  require_device(experiment.trainer.device, "trainer.device", keys);
  for (size_t i = 0; i < experiment.samplers.size(); ++i)
    require_device(experiment.samplers[i].device, fmt::format("samplers.{}.device", i), keys);
  require_device(experiment.eval.device, "eval.device", keys);
}

void check_data(const Experiment& e, const KeyPositions& keys) {
  std::error_code error;
  if (!e.warmstart.data.empty() && !std::filesystem::is_regular_file(e.warmstart.data, error)) {
    throw InputError(keys.of("warmstart.data"), fmt::format("'{}' is no file", e.warmstart.data),
                     "paths are relative to the working directory");
  }
  std::set<std::string> sets{envs::kFullSet};
  for (size_t i = 0; i < e.tasks.size(); ++i) {
    const TaskOptions& task = e.tasks[i];
    bool demonstrations = false;
    try {
      const auto made = envs::find_task(task.env)->make(task.options);
      demonstrations = made->has_demonstrations();
      for (const auto& [name, places] : made->held_out_sets()) sets.insert(name);
    } catch (const std::exception& problem) {  // TaskError, or the option that a constructor refuses
      throw InputError(keys.of(fmt::format("tasks.{}", i)), fmt::format("task '{}': {}", task.env, problem.what()));
    }
    if (e.warmstart.steps > 0 && e.warmstart.data.empty() && !demonstrations) {
      throw InputError(keys.of("warmstart.steps"),
                       fmt::format("a warm start on task '{}', which has no demonstrations", task.env),
                       "set warmstart.data, or warmstart.steps = 0");
    }
  }
  check_sets(e, sets, keys);
}

void check_experiment(const Experiment& experiment, const KeyPositions& keys) {
  check_model(experiment, keys);
  check_probe(experiment, keys);
  check_correction(experiment, keys);
  check_comparison(experiment, keys);
  check_kl(experiment, keys);
  check_autoscaler(experiment, keys);
  check_fleet(experiment, keys);
  check_eval(experiment, keys);
  check_schedule(experiment, keys);
}

}  // namespace motley::app
