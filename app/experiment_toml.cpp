#include "app/experiment_toml.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/experiment_correction.h"
#include "app/recipes.h"
#include "app/schema.h"
#include "app/toml_refusals.h"

namespace motley::app {
namespace {

std::string dotted(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

const SectionInfo* find_section(const std::string& name) {
  for (const SectionInfo& section : schema_sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

/// The nearest of the section's keys; else a key of that very name in another section, by its path.
std::string nearest_key(const std::string& key, const std::vector<std::string>& keys) {
  const std::string near = nearest_name(key, keys);
  if (!near.empty()) return near;
  for (const Field& field : schema_fields()) {
    if (field.key == key) return dotted(field.section, field.key);
  }
  return "";
}

class Loader {
 public:
  Loader(const Node& document, const std::string& file) : keys_(file) { read(document); }
  /// `elsewhere`: the data may be on another machine.
  Experiment take(bool to_run, bool elsewhere = false) {
    resolve_experiment(experiment_, keys_);
    check_experiment(experiment_, keys_);
    if (!elsewhere) check_data(experiment_, keys_);
    if (to_run) check_devices(experiment_, keys_);
    resolve_sizes(experiment_.model);
    return std::move(experiment_);
  }

 private:
  /// The sizes that follow from others, once these have been checked. A model from a folder brings its own.
  static void resolve_sizes(ModelOptions& model) {
    if (!model.path.empty()) return;
    TransformerConfig config = model.config;
    config.vocabulary = 1;  // comes from the tokenizer; no size depends on it
    model.config = config.resolved();
    model.config.vocabulary = 0;
  }

  void read(const Node& document) {
    for (const Member& member : document.members) read_top(member);
    if (experiment_.tasks.empty()) {
      throw InputError(keys_.of("tasks"), "no [[tasks]]",
                       "at least one is needed, with env = one of " + join(env_names(), ", "));
    }
    read_parameters();
  }

  void read_top(const Member& member) {
    if (const Field* field = find_field("", member.key)) {
      assign(*field, member, member.key, 0);
      return;
    }
    const SectionInfo* section = find_section(member.key);
    if (!section || section->name.empty()) unknown_top(member);
    keys_.set(section->name, member.at);
    require_section(member, section->list);
    const Node& value = member.value;
    if (section->name == "autoscaler") experiment_.autoscaler.enabled = true;
    if (!section->list) {
      read_section(value, section->name, section->name, 0);
      return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      const Node& item = value.items[i];
      const std::string path = fmt::format("{}.{}", section->name, i);
      keys_.set(path, item.at);
      section->name == "tasks" ? read_task(item, path, i) : read_group(item, path, i);
    }
  }

  [[noreturn]] static void unknown_top(const Member& member) {
    std::vector<std::string> names = section_keys("");
    for (const SectionInfo& section : schema_sections()) {
      if (!section.name.empty()) names.push_back(section.name);
    }
    refuse_unknown_top(member, names, nearest_key(member.key, names));
  }

  void assign(const Field& field, const Member& member, const std::string& path, size_t index) {
    field.set(experiment_, index, field.rule.read(member.value, path));
    keys_.set(path, member.value.at);
  }

  void read_section(const Node& table, const std::string& section, const std::string& path, size_t index) {
    for (const Member& member : table.members) {
      if (member.key == "parameters" && (section == "algo" || section == "samplers")) {
        if (member.value.kind != Node::Kind::table) refuse_section(member, "a table, as in parameters.mis.low = 0.5");
        keys_.set(path + ".parameters", member.at);
        parameters_.emplace_back(section == "algo" ? -1 : static_cast<int64_t>(index), &member.value);
      } else if (const Field* field = find_field(section, member.key)) {
        assign(*field, member, path + "." + member.key, index);
      } else {
        unknown_key(member, section, section_keys(section));
      }
    }
  }

  [[noreturn]] static void unknown_key(const Member& member, const std::string& section,
                                       const std::vector<std::string>& keys) {
    const SectionInfo* info = find_section(section);
    refuse_unknown_key(member, section, info && info->list, keys, nearest_key(member.key, keys));
  }

  void read_group(const Node& table, const std::string& path, size_t index) {
    experiment_.samplers.emplace_back();
    read_section(table, "samplers", path, index);
    const std::string& name = experiment_.samplers[index].name;
    if (name.empty()) throw InputError(table.at, "a [[samplers]] without a name", "name = \"...\" is needed");
    for (size_t i = 0; i < index; ++i) {
      if (experiment_.samplers[i].name != name) continue;
      throw InputError(keys_.of(path + ".name"), fmt::format("two sampler groups are named '{}'", name),
                       "the first stands at " + keys_.of(fmt::format("samplers.{}.name", i)).text());
    }
  }

  void read_task(const Node& table, const std::string& path, size_t index) {
    TaskOptions& task = experiment_.tasks.emplace_back();
    const Member* env = table.find("env");
    if (!env) {
      throw InputError(table.at, "a [[tasks]] without env", "env = one of " + join(env_names(), ", ") + " is needed");
    }
    assign(*find_field("tasks", "env"), *env, path + ".env", index);
    const envs::TaskInfo& info = *envs::find_task(task.env);
    std::vector<std::string> keys = section_keys("tasks");
    for (const envs::Option& option : info.options) {
      keys.push_back(option.name);
      task.options[option.name] = option_default(option);
    }
    for (const Member& member : table.members) {
      const std::string key = path + "." + member.key;
      const auto option = std::find_if(info.options.begin(), info.options.end(),
                                       [&](const envs::Option& o) { return o.name == member.key; });
      if (const Field* field = find_field("tasks", member.key)) {
        assign(*field, member, key, index);
      } else if (option != info.options.end()) {
        task.options[option->name] = option_text(option_rule(*option).read(member.value, key));
        keys_.set(key, member.value.at);
      } else {
        unknown_key(member, "tasks", keys);
      }
    }
  }

  /// Parameters are read when the correction is known.
  void read_parameters() {
    AlgoOptions& algo = experiment_.algo;
    if (!algo.correction.empty()) algo.parameters = correction_defaults(algo.correction, keys_.of("algo.correction"));
    for (const auto& [index, table] : parameters_) {
      const std::string path = index < 0 ? "algo.parameters" : fmt::format("samplers.{}.parameters", index);
      if (algo.correction.empty()) {
        throw InputError(keys_.of(path), "parameters without algo.correction",
                         "name the correction that they belong to");
      }
      for (auto& [name, value] : read_correction_parameters(*table, path, algo.correction, keys_)) {
        auto& all = index < 0 ? algo.parameters : experiment_.samplers.at(static_cast<size_t>(index)).parameters;
        all[name] = std::move(value);
      }
    }
  }

  Experiment experiment_;
  KeyPositions keys_;
  std::vector<std::pair<int64_t, const Node*>> parameters_;  // of the sampler group by index; -1: the common ones
};

}  // namespace

Position KeyPositions::of(std::string path) const {
  while (!path.empty()) {
    const auto found = at_.find(path);
    if (found != at_.end()) return found->second;
    const size_t dot = path.rfind('.');
    path = dot == std::string::npos ? "" : path.substr(0, dot);
  }
  return {file_, 1, 1};
}

Experiment load_experiment(const ExperimentSource& source) {
  Node document = read_toml_file(source.file);
  if (!document.find("samplers")) {
    const Position start{source.file.string(), 1, 1};
    Node group = Node::empty(Node::Kind::table, start), groups = Node::empty(Node::Kind::array, start);
    group.members.push_back({"name", start, Node::text_value("default", start)});
    groups.items.push_back(std::move(group));
    document.members.push_back({"samplers", start, std::move(groups)});
  }
  apply_overrides(document, source);
  apply_recipe(document);
  return Loader(document, source.file.string()).take(source.to_run);
}

Experiment parse_experiment(const std::string& text, const std::string& source) {
  return Loader(parse_toml(text, source), source).take(false, true);
}

}  // namespace motley::app
