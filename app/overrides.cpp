#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "app/experiment_toml.h"
#include "app/schema.h"

namespace motley::app {
namespace {

bool is_index(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::vector<std::string> all_paths(const Node& document) {
  std::vector<std::string> paths;
  for (const Field& field : schema_fields()) {
    if (field.section.empty())
      paths.push_back(field.key);
    else if (field.section != "tasks" && field.section != "samplers")
      paths.push_back(field.section + "." + field.key);
  }
  for (const char* list : {"tasks", "samplers"}) {
    const Member* member = document.find(list);
    for (size_t i = 0; member && i < member->value.items.size(); ++i) {
      for (const std::string& key : section_keys(list)) paths.push_back(fmt::format("{}.{}.{}", list, i, key));
    }
  }
  return paths;
}

struct Override {
  std::string path, value;
  Position where;
};

Override parse(const std::string& text) {
  const Position where{"--set " + text};
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError(where, "no 'key=value'", "as in --set trainer.lr=1e-4");
  return {text.substr(0, equals), text.substr(equals + 1), where};
}

[[noreturn]] void unknown(const Override& set, const Node& document) {
  throw InputError(set.where, fmt::format("there is no key '{}'", set.path),
                   "allowed: the keys of docs/experiment.md, as section.key, samplers.0.key or samplers.NAME.key",
                   nearest_name(set.path, all_paths(document)));
}

/// The table of a list that "0" or a name (of a group) or an env (of a task) stands for.
Node& list_item(Node& document, const Override& set, const std::string& list, const std::string& which) {
  Member* member = document.find(list);
  const char* const label = list == "tasks" ? "env" : "name";
  std::vector<std::string> labels;
  Node* found = nullptr;
  if (member && member->value.kind == Node::Kind::array) {
    std::vector<Node>& items = member->value.items;
    for (size_t i = 0; i < items.size(); ++i) {
      const Member* name = items[i].find(label);
      labels.push_back(name ? name->value.text : "");
      const bool match = is_index(which) ? std::stoul(which) == i : labels.back() == which;
      if (match && found)
        throw InputError(set.where, fmt::format("'{}' is more than one of {}", which, list),
                         "say which by its index, from 0");
      if (match) found = &items[i];
    }
  }
  if (found) return *found;
  throw InputError(
      set.where, fmt::format("there is no '{}' in {}", which, list),
      labels.empty() ? "there are none" : fmt::format("allowed: 0 to {}, {}", labels.size() - 1, join(labels, ", ")),
      nearest_name(which, labels));
}

Node& table_of(Node& parent, const std::string& key, const Position& where) {
  if (Member* member = parent.find(key)) return member->value;
  parent.members.push_back({key, where, Node::empty(Node::Kind::table, where)});
  return parent.members.back().value;
}

/// The kind of a task's own option; text when there is no such option (the loader refuses it, by name).
ValueKind option_kind(const Node& task, const std::string& key) {
  const Member* env = task.find("env");
  const envs::TaskInfo* info = env ? envs::find_task(env->value.text) : nullptr;
  if (info) {
    for (const envs::Option& option : info->options) {
      if (option.name == key) return option_rule(option).kind;
    }
  }
  return ValueKind::text;
}

/// The kind of a correction's parameter ("mis", "low"); number when there is none (the loader refuses it, by name).
ValueKind parameter_kind(const std::string& piece, const std::string& name) {
  for (const algos::CorrectionInfo& info : algos::corrections()) {
    const algos::ParameterInfo* parameter = algos::find_parameter({&info}, piece + "." + name);
    if (parameter) return parameter_rule(*parameter).kind;
  }
  return ValueKind::number;
}

void put(Node& table, const std::string& key, ValueKind kind, const Override& set) {
  Node value =
      kind == ValueKind::text ? Node::text_value(set.value, set.where) : parse_toml_value(set.value, set.where);
  table.erase(key);
  table.members.push_back({key, set.where, std::move(value)});
}

/// `path`: what follows "parameters": a piece and its parameter (one name alone is refused by the loader).
void put_parameter(Node& owner, const std::vector<std::string>& path, const Override& set) {
  Node& parameters = table_of(owner, "parameters", set.where);
  if (path.size() == 1)
    put(parameters, path[0], ValueKind::number, set);
  else
    put(table_of(parameters, path[0], set.where), path[1], parameter_kind(path[0], path[1]), set);
}

void apply(Node& document, const Override& set) {
  const std::vector<std::string> parts = split_path(set.path);
  if (std::find(parts.begin(), parts.end(), "") != parts.end()) unknown(set, document);
  if (parts.size() == 1) {
    const Field* field = find_field("", parts[0]);
    if (!field) unknown(set, document);
    put(document, parts[0], field->rule.kind, set);
  } else if (parts.size() == 2 && find_field(parts[0], parts[1]) && parts[0] != "tasks" && parts[0] != "samplers") {
    put(table_of(document, parts[0], set.where), parts[1], find_field(parts[0], parts[1])->rule.kind, set);
  } else if ((parts.size() == 3 || parts.size() == 4) && parts[0] == "algo" && parts[1] == "parameters") {
    put_parameter(table_of(document, "algo", set.where), {parts.begin() + 2, parts.end()}, set);
  } else if ((parts.size() == 4 || parts.size() == 5) && parts[0] == "samplers" && parts[2] == "parameters") {
    put_parameter(list_item(document, set, parts[0], parts[1]), {parts.begin() + 3, parts.end()}, set);
  } else if (parts.size() == 3 && (parts[0] == "tasks" || parts[0] == "samplers")) {
    Node& item = list_item(document, set, parts[0], parts[1]);
    const Field* field = find_field(parts[0], parts[2]);
    put(item, parts[2], field ? field->rule.kind : option_kind(item, parts[2]), set);
  } else {
    unknown(set, document);
  }
}

/// Another correction than the file's has other parameters: the file's are not carried over to it.
void drop_parameters_of_another(Node& document, const std::vector<Override>& sets) {
  const Member* algo = document.find("algo");
  const Member* named = algo ? algo->value.find("correction") : nullptr;
  const auto names_another = [&](const Override& set) {
    return set.path == "algo.correction" && (!named || named->value.text != set.value);
  };
  if (std::none_of(sets.begin(), sets.end(), names_another)) return;
  if (Member* section = document.find("algo")) section->value.erase("parameters");
  if (Member* groups = document.find("samplers")) {
    for (Node& group : groups->value.items) group.erase("parameters");
  }
}

}  // namespace

void apply_overrides(Node& document, const ExperimentSource& source) {
  std::vector<Override> sets;
  for (const std::string& text : source.sets) sets.push_back(parse(text));
  if (!source.seed.empty()) sets.push_back({"seed", source.seed, {"--seed " + source.seed}});
  drop_parameters_of_another(document, sets);
  for (const Override& set : sets) apply(document, set);
}

envs::Options task_options(const std::string& env, const std::vector<std::string>& settings) {
  const envs::TaskInfo* info = envs::find_task(env);
  if (!info) {
    throw InputError({"--task " + env}, "there is no such env", "allowed: " + join(env_names(), ", "),
                     nearest_name(env, env_names()));
  }
  envs::Options options;
  std::vector<std::string> names;
  for (const envs::Option& option : info->options) {
    options[option.name] = option_default(option);
    names.push_back(option.name);
  }
  for (const std::string& setting : settings) {
    const Position where{"--option " + setting};
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) throw InputError(where, "no 'key=value'");
    const std::string key = setting.substr(0, equals), text = setting.substr(equals + 1);
    const auto option =
        std::find_if(info->options.begin(), info->options.end(), [&](const envs::Option& o) { return o.name == key; });
    if (option == info->options.end()) {
      throw InputError(where, fmt::format("env '{}' has no option '{}'", env, key),
                       names.empty() ? "it has none" : "allowed: " + join(names, ", "), nearest_name(key, names));
    }
    const ValueRule rule = option_rule(*option);
    const Node node = rule.kind == ValueKind::text ? Node::text_value(text, where) : parse_toml_value(text, where);
    options[key] = option_text(rule.read(node, key));
  }
  return options;
}

}  // namespace motley::app
