#include <algorithm>
#include <cctype>

#include "actors/policy/placement.h"
#include "algos/advantage.h"
#include "algos/reference_kl.h"
#include "algos/reward_shaping.h"
#include "app/autoscaler_fields.h"
#include "app/devices.h"
#include "app/recipes.h"
#include "app/schema_field.h"

namespace motley::app {
namespace {

using E = Experiment;

auto fixed(std::vector<std::string> names) {
  return [names = std::move(names)] { return names; };
}

bool is_keep_rule(const std::string& text) {
  if (text == "all" || text == "none") return true;
  if (!text.starts_with("last ")) return false;
  const std::string count = text.substr(5);
  return !count.empty() && count.size() <= 9 && count[0] != '0' &&
         std::all_of(count.begin(), count.end(), [](unsigned char c) { return std::isdigit(c); });
}

bool is_device(const std::string& text) {
  try {
    kernels::parse_device(text);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void add(std::vector<Field>& to, std::vector<Field> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

std::vector<Field> run_fields() {
  return {
      field(
          "", "name", [](E & e, size_t) -> auto& { return e.name; }, "of the run folder")
          .shaped(kNameForm, is_name),
      field(
          "", "seed", [](E & e, size_t) -> auto& { return e.seed; }, "key of every random number")
          .between(0, 9e15),
      field(
          "run", "updates", [](E & e, size_t) -> auto& { return e.run.updates; }, "batches taken from the fleet")
          .between(1, kMany),
      field(
          "run", "async", [](E & e, size_t) -> auto& { return e.run.async; }, "false: lock-step and bit-reproducible"),
      field(
          "run", "concurrency", [](E & e, size_t) -> auto& { return e.run.concurrency; },
          "episodes that exist and have not been taken by the learner")
          .between(1, 1e6),
      field(
          "run", "keep_trajectories", [](E & e, size_t) -> auto& { return e.run.keep_trajectories; },
          "which updates' trajectories stay on disk")
          .shaped("\"all\", \"none\" or \"last N\" with N at least 1", is_keep_rule),
      field(
          "run", "max_staleness", [](E & e, size_t) -> auto& { return e.run.max_staleness; },
          "groups with an older sample are dropped; in weight versions")
          .between(0, kMany)
          .defaults_to("no limit"),
      field(
          "run", "routing", [](E & e, size_t) -> auto& { return e.run.routing; },
          "which sampler an episode goes to: groups in proportion to their capacity, the least loaded, or in turn "
          "(docs/fleet.md)")
          .one_of([] { return actors::routing_names(); }),
      field(
          "run", "kv_on_swap", [](E & e, size_t) -> auto& { return e.run.kv_on_swap; },
          "what becomes of the keys and values of running sequences when a sampler gets new weights: they stay, or are "
          "computed again before the next token (docs/fleet.md)")
          .one_of(fixed({"keep", "recompute"})),
      field(
          "run", "dir", [](E & e, size_t) -> auto& { return e.run.dir; }, "the run writes DIR/NAME-SEED/"),
      field(
          "run", "checkpoint_every", [](E & e, size_t) -> auto& { return e.run.checkpoint_every; },
          "updates between two checkpoints; there is one at the end too")
          .between(1, kMany),
      field(
          "run", "threads", [](E & e, size_t) -> auto& { return e.run.threads; },
          "compute threads of the process; 0: one per core")
          .between(0, 1024),
      field(
          "run", "workers", [](E & e, size_t) -> auto& { return e.run.workers; },
          "threads that wait for rewards, and for the commands of episodes in sandboxes, of which each runs one at a "
          "time; 0: two per core, at least 4")
          .between(0, 1024),
      field(
          "run", "lost_after", [](E & e, size_t) -> auto& { return e.run.lost_after; },
          "seconds without a sign of life after which a sampler on another machine is lost, and its episodes go on "
          "elsewhere")
          .between(3, 3600),
      field(
          "run", "hang_after", [](E & e, size_t) -> auto& { return e.run.hang_after; },
          "seconds without a token after which a sampler that has work is given up, and its episodes go on elsewhere")
          .between(1, 1000000),
      field(
          "run", "learner", [](E & e, size_t) -> auto& { return e.run.learner; },
          "where the optimizer steps are computed: in the run's process, or in one that joins with motley learner "
          "(docs/fleet.md)")
          .one_of(fixed({"here", "joins"})),
      field(
          "run", "learner_patience", [](E & e, size_t) -> auto& { return e.run.learner_patience; },
          "seconds that an update waits for a learner that joins; then the run stops with a checkpoint")
          .between(1, 1000000),
  };
}

std::vector<Field> model_fields() {
  return {
      field(
          "model", "path", [](E & e, size_t) -> auto& { return e.model.path; },
          "a checkpoint folder; the sizes below are then its own and not written")
          .defaults_to("none: a fresh model"),
      field(
          "model", "seed", [](E & e, size_t) -> auto& { return e.model.seed; },
          "of the starting weights and the warm start; set it to give runs of several seeds one start")
          .between(0, kMany)
          .defaults_to("the run's"),
      field(
          "model", "layers", [](E & e, size_t) -> auto& { return e.model.config.layers; }, "decoder layers")
          .between(1, 1000),
      field(
          "model", "width", [](E & e, size_t) -> auto& { return e.model.config.width; }, "of the hidden state")
          .between(2, 65536),
      field(
          "model", "heads", [](E & e, size_t) -> auto& { return e.model.config.heads; }, "query heads")
          .between(1, 1024),
      field(
          "model", "kv_heads", [](E & e, size_t) -> auto& { return e.model.config.kv_heads; },
          "key and value heads; heads is a multiple of it")
          .between(1, 1024),
      field(
          "model", "head_dim", [](E & e, size_t) -> auto& { return e.model.config.head_dim; },
          "width of a head; even, since rotary embedding turns pairs")
          .between(2, 1024)
          .defaults_to("width / heads"),
      field(
          "model", "ffn", [](E & e, size_t) -> auto& { return e.model.config.ffn; }, "width inside SwiGLU")
          .between(1, 1e6)
          .defaults_to("8/3 width, rounded up to a multiple of 32"),
      field(
          "model", "rope_theta", [](E & e, size_t) -> auto& { return e.model.config.rope_theta; },
          "base of the rotary embedding")
          .between(1, 1e12),
      field(
          "model", "norm_eps", [](E & e, size_t) -> auto& { return e.model.config.norm_eps; }, "of RMSNorm")
          .above(0, 1),
      field(
          "model", "qk_norm", [](E & e, size_t) -> auto& { return e.model.config.qk_norm; },
          "RMSNorm of queries and keys, per head"),
      field(
          "model", "tied_head", [](E & e, size_t) -> auto& { return e.model.config.tied_head; },
          "head and embedding share their weight"),
      field(
          "model", "max_positions", [](E & e, size_t) -> auto& { return e.model.config.max_positions; },
          "longest sequence, prompt and reply together")
          .between(2, 1e6),
  };
}

std::vector<Field> task_fields() {
  return {
      field(
          "tasks", "env", [](E & e, size_t i) -> auto& { return e.tasks.at(i).env; }, "the task's name")
          .one_of(env_names)
          .defaults_to("none: must be given"),
      field(
          "tasks", "weight", [](E & e, size_t i) -> auto& { return e.tasks.at(i).weight; },
          "share of the prompts, relative to the other tasks'")
          .above(0, kMany),
      field(
          "warmstart", "steps", [](E & e, size_t) -> auto& { return e.warmstart.steps; },
          "supervised steps before the first update; 0: none")
          .between(0, kMany),
      field(
          "warmstart", "batch", [](E & e, size_t) -> auto& { return e.warmstart.batch; }, "demonstrations per step")
          .between(1, 1e6),
      field(
          "warmstart", "lr", [](E & e, size_t) -> auto& { return e.warmstart.lr; }, "learning rate")
          .above(0, 10),
      field(
          "warmstart", "demonstrations", [](E & e, size_t) -> auto& { return e.warmstart.demonstrations; },
          "different demonstrations of the tasks, which come again in shuffled orders; those of agents are really "
          "played, and take time; 0: every one is new")
          .between(0, kMany),
      field(
          "warmstart", "data", [](E & e, size_t) -> auto& { return e.warmstart.data; },
          "JSONL of {\"prompt\", \"answer\"}")
          .defaults_to("none: the tasks' demonstrations"),
      field(
          "warmstart", "cache", [](E & e, size_t) -> auto& { return e.warmstart.cache; },
          "keep the result under run.dir, by content hash"),
  };
}

std::vector<Field> algo_fields() {
  return {
      field(
          "sampling", "temperature", [](E & e, size_t) -> auto& { return e.sampling.temperature; },
          "of sampler and trainer alike")
          .above(0, 100)
          .since("greedy decoding has no gradient: it is for evaluation, eval.temperature = 0"),
      field(
          "sampling", "top_p", [](E & e, size_t) -> auto& { return e.sampling.top_p; },
          "below 1: candidate sets are recorded and replayed")
          .above(0, 1),
      field(
          "sampling", "top_k", [](E & e, size_t) -> auto& { return e.sampling.top_k; },
          "0: off; else candidate sets are recorded and replayed")
          .between(0, 1e6),
      field(
          "sampling", "max_tokens", [](E & e, size_t) -> auto& { return e.sampling.max_tokens; }, "of a reply")
          .between(1, 1e6),
      field(
          "sampling", "record", [](E & e, size_t) -> auto& { return e.sampling.record; },
          "what a sampler records besides the drawn token; auto: what the correction needs")
          .one_of(fixed({"auto", "sampled", "top_k", "full"})),
      field(
          "sampling", "record_top_k", [](E & e, size_t) -> auto& { return e.sampling.record_top_k; },
          "ids per token of a top_k record")
          .between(1, 1e6),
      field(
          "algo", "advantage", [](E & e, size_t) -> auto& { return e.algo.advantage; }, "from a group's rewards")
          .one_of([] { return algos::advantage_names(); }),
      field(
          "algo", "advantage_level", [](E & e, size_t) -> auto& { return e.algo.advantage_level; },
          "what of a group is compared: episodes by their rewards, or their k-th turns by what was earned from there "
          "on")
          .one_of([] { return algos::advantage_level_names(); }),
      field(
          "algo", "baseline_decay", [](E & e, size_t) -> auto& { return e.algo.baseline_decay; },
          "advantage reinforce: weight of the past in the moving baseline, per batch")
          .below(0, 1),
      field(
          "algo", "reduction", [](E & e, size_t) -> auto& { return e.algo.reduction; }, "how token losses are added up")
          .one_of([] { return algos::reduction_names(); }),
      field(
          "algo", "denominator", [](E & e, size_t) -> auto& { return e.algo.denominator; },
          "whether masked tokens count in the reduction: kept, or renormalized to those that pass")
          .one_of([] { return algos::denominator_names(); }),
      field(
          "algo", "recipe", [](E & e, size_t) -> auto& { return e.algo.recipe; },
          "a published method by name: gives the keys that it concerns their defaults")
          .one_of(recipe_names)
          .defaults_to("none"),
      field(
          "algo", "correction", [](E & e, size_t) -> auto& { return e.algo.correction; },
          "the off-policy correction: a sum of names, as in \"sc+mis\"")
          .defaults_to("\"grpo\" when run.async = false; else it must be named"),
      field(
          "algo", "prompts", [](E & e, size_t) -> auto& { return e.algo.prompts; }, "groups per update")
          .between(1, 1e6),
      field(
          "algo", "group_size", [](E & e, size_t) -> auto& { return e.algo.group_size; }, "samples per prompt")
          .between(1, 65536),
      field(
          "algo", "drop_equal_groups", [](E & e, size_t) -> auto& { return e.algo.drop_equal_groups; },
          "groups whose task rewards are all equal are dropped, and others drawn in their place"),
      field(
          "algo", "drop_limit", [](E & e, size_t) -> auto& { return e.algo.drop_limit; },
          "of drop_equal_groups: batches' worth of groups drawn for one update; then it goes on with what it has")
          .between(1, 1000),
      field(
          "algo", "overlong", [](E & e, size_t) -> auto& { return e.algo.overlong; },
          "replies that reach sampling.max_tokens: keep; filter (compared with, not trained on); penalty (of up to 1, "
          "taken from the reward)")
          .one_of([] { return algos::overlong_names(); }),
      field(
          "algo", "overlong_tokens", [](E & e, size_t) -> auto& { return e.algo.overlong_tokens; },
          "the last tokens of sampling.max_tokens, over which the penalty grows to 1")
          .between(1, 1e6)
          .defaults_to("a fifth of sampling.max_tokens"),
      field(
          "algo", "minibatches", [](E & e, size_t) -> auto& { return e.algo.minibatches; },
          "optimizer steps per pass over a batch")
          .between(1, 1e6),
      field(
          "algo", "epochs", [](E & e, size_t) -> auto& { return e.algo.epochs; }, "passes over a batch")
          .between(1, 1000),
      field(
          "algo", "kl", [](E & e, size_t) -> auto& { return e.algo.kl; },
          "KL to a reference policy: k1 in the reward, k2 or k3 in the loss; what gradient each has: "
          "docs/corrections.md")
          .one_of([] { return algos::kl_names(); }),
      field(
          "algo", "kl_coefficient", [](E & e, size_t) -> auto& { return e.algo.kl_coefficient; },
          "of the KL term; above 0 with any kl but none")
          .between(0, 1e6),
      field(
          "algo", "kl_ratio_cap", [](E & e, size_t) -> auto& { return e.algo.kl_ratio_cap; },
          "k2 and k3 are multiplied by p / q, capped here, since the tokens were drawn from q; 0: not multiplied")
          .between(0, 1e6),
      field(
          "algo", "reference", [](E & e, size_t) -> auto& { return e.algo.reference; },
          "a checkpoint of the same sizes and tokenizer; kept in the run's folder")
          .defaults_to("the weights before the first update"),
      field(
          "algo", "entropy_coefficient", [](E & e, size_t) -> auto& { return e.algo.entropy_coefficient; },
          "of the entropy bonus; below 0: a penalty")
          .between(-1e6, 1e6),
  };
}

std::vector<Field> trainer_fields() {
  return {
      field(
          "trainer", "profile", [](E & e, size_t) -> auto& { return e.trainer.profile; },
          "numeric profile; master weights are fp32 in each")
          .one_of(fixed({"fp32", "bf16", "fp16"})),
      field(
          "trainer", "device", [](E & e, size_t) -> auto& { return e.trainer.device; },
          "where it computes; emulated: the CUDA source on the host, for tests")
          .shaped(kDeviceForm, is_device),
      field(
          "trainer", "kernels", [](E & e, size_t) -> auto& { return e.trainer.kernels; },
          "on a device: those with the CPU's bits, or the fastest (cuBLASLt, cuDNN, matrix units)")
          .one_of(fixed({"invariant", "vendor"})),
      field(
          "trainer", "lr", [](E & e, size_t) -> auto& { return e.trainer.lr; }, "learning rate")
          .above(0, 10),
      field(
          "trainer", "beta1", [](E & e, size_t) -> auto& { return e.trainer.beta1; }, "of AdamW")
          .below(0, 1),
      field(
          "trainer", "beta2", [](E & e, size_t) -> auto& { return e.trainer.beta2; }, "of AdamW")
          .below(0, 1),
      field(
          "trainer", "eps", [](E & e, size_t) -> auto& { return e.trainer.eps; }, "of AdamW")
          .above(0, 1),
      field(
          "trainer", "weight_decay", [](E & e, size_t) -> auto& { return e.trainer.weight_decay; },
          "decoupled; matrices only")
          .between(0, 10),
      field(
          "trainer", "clip_norm", [](E & e, size_t) -> auto& { return e.trainer.clip_norm; },
          "of the whole gradient; 0: no clipping")
          .between(0, kMany),
      field(
          "trainer", "schedule", [](E & e, size_t) -> auto& { return e.trainer.schedule; },
          "of the learning rate; linear and cosine end at 0")
          .one_of(fixed({"constant", "linear", "cosine"})),
      field(
          "trainer", "warmup_updates", [](E & e, size_t) -> auto& { return e.trainer.warmup_updates; },
          "in which the learning rate rises linearly")
          .between(0, kMany),
      field(
          "trainer", "loss_scale", [](E & e, size_t) -> auto& { return e.trainer.loss_scale; },
          "fp16 only: the first scale")
          .between(1, 1e12),
      field(
          "trainer", "loss_scale_growth", [](E & e, size_t) -> auto& { return e.trainer.loss_scale_growth; },
          "fp16 only: clean steps until the scale doubles")
          .between(1, kMany),
      field(
          "trainer", "threads", [](E & e, size_t) -> auto& { return e.trainer.threads; },
          "its share of run.threads while samplers want to compute too; 0: half of them")
          .between(0, 1024),
      field(
          "trainer", "checkpoint_activations", [](E & e, size_t) -> auto& { return e.trainer.checkpoint_activations; },
          "keep one row of numbers per token and layer and compute the rest again on the way back: less memory, a "
          "third more work, the same bits"),
  };
}

std::vector<Field> sampler_fields() {
  return {
      field(
          "samplers", "name", [](E & e, size_t i) -> auto& { return e.samplers.at(i).name; }, "of the group")
          .shaped(kNameForm, is_name)
          .defaults_to("none: must be given"),
      field(
          "samplers", "profile", [](E & e, size_t i) -> auto& { return e.samplers.at(i).profile; },
          "numeric profile; trainer: the trainer's own")
          .one_of(group_profile_names),
      field(
          "samplers", "device", [](E & e, size_t i) -> auto& { return e.samplers.at(i).device; },
          "where its engines compute")
          .shaped(kDeviceForm, is_device),
      field(
          "samplers", "kernels", [](E & e, size_t i) -> auto& { return e.samplers.at(i).kernels; },
          "on a device: those that the profile promises, or the fastest (cuBLASLt, matrix units)")
          .one_of(fixed({"invariant", "vendor"})),
      field(
          "samplers", "replicas", [](E & e, size_t i) -> auto& { return e.samplers.at(i).replicas; },
          "engines in the run's own process; 0 where all are to join from elsewhere (docs/fleet.md)")
          .between(0, 256),
      field(
          "samplers", "price_per_hour", [](E & e, size_t i) -> auto& { return e.samplers.at(i).price_per_hour; },
          "of one replica, for cost/...")
          .between(0, kMany),
      field(
          "samplers", "capacity", [](E & e, size_t i) -> auto& { return e.samplers.at(i).capacity; },
          "fixed share of the sessions")
          .above(0, kMany)
          .defaults_to("measured; in lock-step: by replicas"),
      field(
          "samplers", "max_sequences", [](E & e, size_t i) -> auto& { return e.samplers.at(i).max_sequences; },
          "slots of each replica's engine")
          .between(1, 65536)
          .defaults_to("256, or what run.concurrency still needs if that is more"),
      field(
          "samplers", "graphs", [](E & e, size_t i) -> auto& { return e.samplers.at(i).graphs; },
          "on cuda:N and emulated: decode steps are launched as graphs; false: kernel by kernel, with the same bits"),
      field(
          "samplers", "staleness", [](E & e, size_t i) -> auto& { return e.samplers.at(i).staleness; },
          "imposed: drawn per group and update; lock-step only; in weight versions")
          .between(0, 1000)
          .defaults_to("none"),
  };
}

std::vector<Field> eval_fields() {
  return {
      field(
          "eval", "every", [](E & e, size_t) -> auto& { return e.eval.every; },
          "updates between two; there is one before the first update and one after the last too")
          .between(1, kMany),
      field(
          "eval", "prompts", [](E & e, size_t) -> auto& { return e.eval.prompts; }, "held-out prompts of a set")
          .between(1, 1e6),
      field(
          "eval", "sets", [](E & e, size_t) -> auto& { return e.eval.sets; },
          "sets of held-out problems: `full`, and those that the tasks name (docs/tasks.md)"),
      field(
          "eval", "k", [](E & e, size_t) -> auto& { return e.eval.k; }, "pass@k")
          .between(1, 1e6),
      field(
          "eval", "samples", [](E & e, size_t) -> auto& { return e.eval.samples; },
          "per prompt; at least the largest k")
          .between(1, 1e6)
          .defaults_to("4, or the largest k if that is more"),
      field(
          "eval", "profiles", [](E & e, size_t) -> auto& { return e.eval.profiles; }, "numeric profiles")
          .one_of(profile_names),
      field(
          "eval", "device", [](E & e, size_t) -> auto& { return e.eval.device; }, "where evaluations compute")
          .shaped(kDeviceForm, is_device),
      field(
          "eval", "temperature", [](E & e, size_t) -> auto& { return e.eval.temperature; },
          "never inherited from training; 0: greedy")
          .between(0, 100),
      field(
          "eval", "top_p", [](E & e, size_t) -> auto& { return e.eval.top_p; }, "never inherited from training")
          .above(0, 1),
  };
}

}  // namespace

bool is_name(const std::string& text) {
  const auto ok = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '+'; };
  return text.size() <= 64 && std::isalpha(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), ok);
}

const std::vector<SectionInfo>& schema_sections() {
  static const std::vector<SectionInfo> sections{
      {"", "The top of the file."},
      {"run", "How long, how, and where to."},
      {"model", "A fresh model of these sizes, or a checkpoint."},
      {"tasks", "One or more, mixed by weight. Each env has keys of its own, below.", true},
      {"warmstart", "Supervised steps before the first update."},
      {"sampling", "How replies are drawn, and what is recorded of it."},
      {"algo", "From rewards to a gradient."},
      {"trainer", "The learner's numerics and optimizer."},
      {"samplers", "One or more groups of samplers. Without any there is one, `default`, of profile `trainer`.", true},
      {"autoscaler", "With this section groups grow and shrink between their minimum and maximum (`docs/fleet.md`)."},
      {"eval", "pass@k on held-out prompts."},
      {"watch", "Signs of a collapse: alarms, when they are raised, and what they do (`docs/diagnosis.md`)."},
      {"probe", "Measurements on the run's own batches that cost passes of their own (`docs/diagnosis.md`)."},
  };
  return sections;
}

const std::vector<Field>& schema_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = run_fields();
    add(all, model_fields());
    add(all, task_fields());
    add(all, algo_fields());
    add(all, trainer_fields());
    add(all, sampler_fields());
    add(all, experiment_autoscaler_fields());
    add(all, eval_fields());
    add(all, watch_fields());
    add(all, probe_fields());
    return all;
  }();
  return fields;
}

}  // namespace motley::app
