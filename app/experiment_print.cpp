#include <fmt/format.h>

#include "app/experiment_toml.h"
#include "app/schema.h"

namespace motley::app {
namespace {

/// A task's option as TOML: numbers and booleans as they are kept, texts in quotes.
std::string option_to_toml(const envs::Option& option, const std::string& text) {
  return option.kind == envs::Option::Kind::text ? toml_text(text) : text;
}

struct Line {
  std::string section, key, value;
  size_t index = 0;
};

void add_fields(std::vector<Line>& lines, Experiment& experiment, const std::string& section, size_t index) {
  for (const Field& field : schema_fields()) {
    if (field.section != section) continue;
    // A model from a folder brings its own sizes.
    if (section == "model" && field.key != "path" && !experiment.model.path.empty()) continue;
    if (const auto value = field.get(experiment, index)) {
      lines.push_back({section, field.key, value_to_toml(*value), index});
    }
  }
}

void add_parameters(std::vector<Line>& lines, const algos::CorrectionParameters& parameters, const std::string& section,
                    const std::string& prefix, size_t index) {
  for (const auto& [name, value] : parameters)
    lines.push_back({section, prefix + name, parameter_to_toml(value), index});
}

void add_task_options(std::vector<Line>& lines, const TaskOptions& task, size_t index) {
  const envs::TaskInfo* info = envs::find_task(task.env);
  if (!info) return;
  for (const envs::Option& option : info->options) {
    const auto found = task.options.find(option.name);
    if (found == task.options.end() || found->second.empty()) continue;
    lines.push_back({"tasks", option.name, option_to_toml(option, found->second), index});
  }
}

std::vector<Line> lines_of(Experiment experiment) {
  std::vector<Line> lines;
  for (const SectionInfo& section : schema_sections()) {
    size_t count = 1;
    if (section.name == "tasks") count = experiment.tasks.size();
    if (section.name == "samplers") count = experiment.samplers.size();
    if (section.name == "autoscaler" && !experiment.autoscaler.enabled) continue;  // its mere presence turns it on
    for (size_t i = 0; i < count; ++i) {
      add_fields(lines, experiment, section.name, i);
      if (section.name == "tasks") add_task_options(lines, experiment.tasks[i], i);
      if (section.name == "samplers")
        add_parameters(lines, experiment.samplers[i].parameters, "samplers", "parameters.", i);
    }
    if (section.name == "algo") add_parameters(lines, experiment.algo.parameters, "algo.parameters", "", 0);
  }
  return lines;
}

bool is_list(const std::string& section) { return section == "tasks" || section == "samplers"; }

}  // namespace

std::string experiment_to_toml(const Experiment& experiment) {
  std::string text, section;
  size_t index = 0;
  for (const Line& line : lines_of(experiment)) {
    if (line.section != section || line.index != index) {
      text += "\n" + (is_list(line.section) ? "[[" + line.section + "]]" : "[" + line.section + "]") + "\n";
      section = line.section;
      index = line.index;
    }
    text += line.key + " = " + line.value + "\n";
  }
  return text;
}

std::map<std::string, std::string> experiment_values(const Experiment& experiment) {
  std::map<std::string, std::string> values;
  for (const Line& line : lines_of(experiment)) {
    std::string path = line.section.empty() ? "" : line.section + ".";
    if (is_list(line.section)) path += fmt::format("{}.", line.index);
    values[path + line.key] = line.value;
  }
  return values;
}

}  // namespace motley::app
