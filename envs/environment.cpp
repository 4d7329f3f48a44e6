#include "envs/environment.h"

#include <algorithm>

#include "envs/interaction.h"

namespace motley::envs {

namespace {

// Inside a function: registration runs before main, in an order of files that nobody fixes.
std::vector<TaskInfo>& registry() {
  static std::vector<TaskInfo> infos;
  return infos;
}

bool by_name(const TaskInfo& info, std::string_view name) { return info.name < name; }

}  // namespace

std::unique_ptr<Interaction> Task::interact(const Problem&, const Tokenizer&, const InteractionLimits&) const {
  throw std::logic_error("an interaction of a task that has none");
}

InteractionExample Task::demonstrate(const Problem&, const Tokenizer&, const InteractionLimits&) const {
  throw std::logic_error("a played demonstration of a task that has none");
}

bool register_task(TaskInfo info) {
  auto& infos = registry();
  const auto place = std::lower_bound(infos.begin(), infos.end(), info.name, by_name);
  if (place != infos.end() && place->name == info.name) {
    throw std::logic_error("two tasks are named " + info.name);
  }
  infos.insert(place, std::move(info));
  return true;
}

const std::vector<TaskInfo>& tasks() { return registry(); }

const TaskInfo* find_task(std::string_view name) {
  const auto& infos = tasks();
  const auto place = std::lower_bound(infos.begin(), infos.end(), name, by_name);
  return place != infos.end() && place->name == name ? &*place : nullptr;
}

}  // namespace motley::envs
