// docs/experiment.md, written from the schema; tests/app compares the file with it.
#include <fmt/format.h>

#include "app/recipes.h"
#include "app/schema.h"

namespace motley::app {
namespace {

const char* const kIntroduction = R"(# The experiment file

Every key of an experiment's TOML. This page is the output of `motley schema`; a test compares the two.

- Strict: an unknown key, a wrong type or an impossible value stops the command with exit code 2 and one message,
  `FILE:LINE:COLUMN: error: what was found; what is allowed; did you mean 'x'?`. Nothing is created then.
- `--set a.b=v` changes a key by its path (`trainer.lr`, `samplers.0.profile` or `samplers.NAME.profile`,
  `tasks.0.weight` or `tasks.ENV.weight`, `algo.parameters.mis.low`); `--seed N` is `--set seed=N`. The value is read by the key's type: text as
  it stands, all else as TOML. The last of several wins. Naming another correction drops the file's
  parameters.
- `--dry-run` prints the resolved experiment: every key that has a value. That text resolves to itself.
- A whole number may stand for a number; `"false"` is text, `1.0` is no integer.
- Paths are relative to the working directory.
)";

const char* const kRules = R"(
## What is refused, and why

| rule | reason |
| --- | --- |
| `algo.correction` missing and `run.async` | asynchronous samples are off-policy: plain GRPO must be asked for by name |
| `sampling.temperature` <= 0 | greedy decoding has no gradient |
| `algo.group_size` 1, but with advantage `reinforce` | every other advantage compares a sample with the others of its group |
| `algo.drop_equal_groups` with advantage `reinforce` | there a group of equal rewards teaches as well as any other |
| `algo.advantage_level = "turn"` with advantage `maxrl` or `reinforce` | their mean and baseline stand for whole episodes |
| `algo.denominator = "renormalized"` with reduction `constant` | that reduction counts no tokens |
| advantage `maxrl` with `algo.kl = "k1"` or `algo.overlong = "penalty"` | it divides by the mean reward, which these can make negative |
| `algo.overlong_tokens` above `sampling.max_tokens` | a penalty cannot begin before the reply |
| `algo.kl` without `algo.kl_coefficient`, or that or `algo.reference` without `algo.kl` | one has no effect without the other |
| `algo.minibatches` above `algo.prompts` | groups are never split |
| `sampling.record` other than `auto` with `top_p` < 1 or `top_k` > 0 | the trainer must replay the candidate set, so that is what is recorded, for every correction |
| `sampling.record` less than the correction needs | sums with `sc` need more than the drawn token's probability |
| two ratio rules in `algo.correction`, or a piece twice | both would weight the same tokens |
| `sc` with a rule whose weight is no function of p / q of a token | it subtracts the weighted expectation over all ids: with weights of whole responses, or of pi_old, there is none |
| a clip on p / pi_old with `minibatches` = `epochs` = 1 | p is pi_old then: the clip can never bind |
| parameters of a `[[samplers]]` group with `m2po` or `ais` | these weigh the whole batch together |
| `samplers.staleness` with `run.async` | imposed staleness is for lock-step; asynchronous runs have their own |
| `run.routing` other than `capacity` in lock-step, or with `samplers.capacity` | there an episode's group follows from its number alone; only that policy looks at shares |
| `run.concurrency` below `prompts` x `group_size` with `run.async` | no batch could ever be complete |
| slots (`max_sequences` x `replicas`, all groups) below `run.concurrency` with `run.async` | every episode that exists has a slot |
| an autoscaler in lock-step | every update waits for the same replicas there |
| keys of an autoscaler, or of what it starts, without `[autoscaler]` | they would have no effect |
| `busy_idle` < `target_idle` < `spare_idle` not so | the fleet would grow and shrink in turn |
| minima above maxima, or dearer than the budget; nothing that may be started | the run would wait for ever |
| commands that do not name `{instance}`, or have a place of another name | nobody would know what to stop |
| `eval.samples` below the largest `eval.k` | pass@k needs k samples |
| a set of `eval.sets` that no task names, or with the name of a numeric profile | it has no problem; two metrics would have one name |
| `model.heads` no multiple of `model.kv_heads`; an odd head width | grouped heads share evenly; rotary embedding turns pairs |
| `sampling.max_tokens` not below `model.max_positions` | a reply follows a prompt |
| sizes together with `model.path` | the sizes are the checkpoint's |
| a warm start on a task without demonstrations and without `warmstart.data` | there is nothing to learn from |
| two groups of one name | metrics and `--set` go by name |
)";

std::string cell(std::string text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string default_text(const Field& field) {
  if (!field.default_note.empty()) return field.default_note;
  Experiment defaults;
  defaults.tasks.resize(1);
  defaults.samplers.resize(1);
  defaults.autoscaler.enabled = true;
  const auto value = field.get(defaults, 0);
  return value ? "`" + value_to_toml(*value) + "`" : "none";
}

/// Long lists of names are not repeated at every key.
std::string allowed_text(const Field& field) {
  if (field.section == "tasks" && field.key == "env") return "`motley list envs`";
  if (field.key == "correction") return "`motley list corrections`, joined by +";
  if (field.key == "recipe") return "`motley list recipes`";
  if (field.key == "profiles") return "a list from `motley list profiles`";
  if (field.section == "samplers" && field.key == "profile") return "`trainer` or one of `motley list profiles`";
  return field.rule.allowed();
}

std::string section_table(const SectionInfo& section) {
  const std::string title = section.list ? "[[" + section.name + "]]" : "[" + section.name + "]";
  std::vector<KeyRow> rows;
  for (const Field& field : schema_fields()) {
    if (field.section != section.name) continue;
    rows.push_back({field.key, kind_name(field.rule.kind), default_text(field), allowed_text(field), field.help});
  }
  return key_table(section.name.empty() ? "" : title, section.help, rows);
}

std::string env_tables() {
  std::string text;
  for (const envs::TaskInfo& info : envs::tasks()) {
    text += fmt::format("\n### env = \"{}\"\n\n{}\n", info.name, info.summary);
    if (info.options.empty()) continue;
    text += "\n| key | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
    for (const envs::Option& option : info.options) {
      const ValueRule rule = option_rule(option);
      const std::string value = option.default_value.empty() ? "none" : "`" + option_default(option) + "`";
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", option.name, kind_name(rule.kind), value,
                          cell(rule.allowed()), cell(option.help));
    }
  }
  return text;
}

std::string parameter_table() {
  std::string text =
      "\n### `[algo.parameters]`\n\nOf the pieces of the correction, as `mis.low = 0.5`; formulas in "
      "`docs/corrections.md`. Numbers may differ between\nsampler groups: `parameters.mis.high = 3.0` in a "
      "`[[samplers]]` table holds for that group alone.\n\n"
      "| parameter | default | allowed | meaning |\n| --- | --- | --- | --- |\n";
  for (const algos::CorrectionInfo& info : algos::corrections()) {
    for (const algos::ParameterInfo& parameter : info.parameters) {
      text += fmt::format("| `{}.{}` | `{}` | {} | {} |\n", info.name, parameter.name,
                          parameter_to_toml(parameter.default_value), cell(parameter_rule(parameter).allowed()),
                          cell(parameter.meaning));
    }
  }
  return text;
}

std::string recipe_table() {
  std::string text =
      "\n### Recipes\n\nKeys that the file gives, or `--set`, win over the recipe's.\n\n"
      "| `algo.recipe` | sets | source |\n| --- | --- | --- |\n";
  for (const Recipe& recipe : recipes()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : recipe.keys) keys.push_back("`" + key + " = " + value + "`");
    text += fmt::format("| `{}` | {} | {} |\n", recipe.name, cell(join(keys, ", ")), cell(recipe.source));
  }
  return text;
}

}  // namespace

std::string key_table(const std::string& title, const std::string& help, const std::vector<KeyRow>& rows) {
  std::string text = fmt::format(
      "\n## {}\n\n{}\n\n| key | type | default | allowed | meaning |\n"
      "| --- | --- | --- | --- | --- |\n",
      title.empty() ? "top of the file" : "`" + title + "`", help);
  for (const KeyRow& row : rows)
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.key, row.type, cell(row.value), cell(row.allowed),
                        cell(row.help));
  return text;
}

std::string schema_page() {
  std::string text = kIntroduction;
  for (const SectionInfo& section : schema_sections()) {
    text += section_table(section);
    if (section.name == "tasks") text += env_tables();
    if (section.name == "algo") text += parameter_table() + recipe_table();
  }
  return text + kRules;
}

}  // namespace motley::app
