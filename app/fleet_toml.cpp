#include "app/fleet_toml.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/autoscaler_fields.h"
#include "app/experiment_toml.h"
#include "app/toml_refusals.h"

namespace motley::app {
namespace {

constexpr int64_t kMostReplicas = 100000;

std::vector<std::string> keys_of(const std::string& section) {
  std::vector<std::string> keys;
  for (const FleetField& field : fleet_fields())
    if (field.section == section) keys.push_back(field.key);
  return keys;
}

class FleetLoader {
 public:
  FleetLoader(const Node& document, const std::string& file) : keys_(file) {
    for (const Member& member : document.members) read_top(member);
    check();
  }
  simulation::FleetPlan take() { return std::move(plan_); }

 private:
  void read_top(const Member& member) {
    for (const FleetField& field : fleet_fields())
      if (field.section.empty() && field.key == member.key) return read_key(field, member, "", 0);
    const auto section = std::find_if(fleet_sections().begin(), fleet_sections().end(), [&](const SectionInfo& info) {
      return !info.name.empty() && info.name == member.key;
    });
    if (section == fleet_sections().end()) refuse_top(member);
    keys_.set(section->name, member.at);
    require_section(member, section->list);
    const Node& value = member.value;
    if (section->name == "autoscaler") plan_.autoscaler.enabled = true;
    if (!section->list) return read_section(value, section->name, section->name, 0);
    for (size_t i = 0; i < value.items.size(); ++i) read_group(value.items[i], i);
  }

  [[noreturn]] static void refuse_top(const Member& member) {
    std::vector<std::string> names = keys_of("");
    for (const SectionInfo& section : fleet_sections())
      if (!section.name.empty()) names.push_back(section.name);
    refuse_unknown_top(member, names, nearest_name(member.key, names));
  }

  void read_key(const FleetField& field, const Member& member, const std::string& path, size_t index) {
    const std::string name = path.empty() ? member.key : path + "." + member.key;
    field.set(plan_, index, field.rule.read(member.value, name));
    keys_.set(name, member.value.at);
  }

  void read_section(const Node& table, const std::string& section, const std::string& path, size_t index) {
    for (const Member& member : table.members) {
      const auto field = std::find_if(fleet_fields().begin(), fleet_fields().end(), [&](const FleetField& each) {
        return each.section == section && each.key == member.key;
      });
      if (field == fleet_fields().end()) {
        const std::vector<std::string> keys = keys_of(section);
        refuse_unknown_key(member, section, section == "samplers", keys, nearest_name(member.key, keys));
      }
      read_key(*field, member, path, index);
    }
  }

  void read_group(const Node& table, size_t index) {
    const std::string path = fmt::format("samplers.{}", index);
    keys_.set(path, table.at);
    plan_.samplers.emplace_back();
    read_section(table, "samplers", path, index);
    const std::string& name = plan_.samplers[index].name;
    if (name.empty()) throw InputError(table.at, "a [[samplers]] without a name", "name = \"...\" is needed");
    for (size_t i = 0; i < index; ++i) {
      if (plan_.samplers[i].name != name) continue;
      throw InputError(keys_.of(path + ".name"), fmt::format("two sampler groups are named '{}'", name),
                       "the first stands at " + keys_.of(fmt::format("samplers.{}.name", i)).text());
    }
  }

  // What several keys make impossible.
  void check() const {
    if (plan_.samplers.empty()) throw InputError(keys_.of("samplers"), "no [[samplers]]", "at least one is needed");
    const int64_t batch = plan_.learner.prompts * plan_.learner.group_size;
    if (plan_.run.concurrency < batch) {
      throw InputError(keys_.of("run.concurrency"),
                       fmt::format("a concurrency of {} is below one batch of {} x {} = {} episodes",
                                   plan_.run.concurrency, plan_.learner.prompts, plan_.learner.group_size, batch),
                       fmt::format("no batch could ever be complete: at least {}", batch));
    }
    int64_t begin = 0, most = 0;
    for (size_t i = 0; i < plan_.samplers.size(); ++i) {
      check_group(i);
      begin += plan_.samplers[i].replicas;
      most += std::max(plan_.samplers[i].replicas, plan_.samplers[i].maximum.value_or(0));
    }
    if (most > kMostReplicas) {
      throw InputError(keys_.of("samplers"), fmt::format("{} replicas", most),
                       fmt::format("at most {} are simulated", kMostReplicas));
    }
    if (most == 0 || (begin == 0 && !plan_.autoscaler.enabled))
      throw InputError(keys_.of("samplers"), "no group has a replica", "at least one must");
    check_autoscaling(plan_.autoscaler, plan_.samplers, keys_);
    check_compare();
  }

  void check_group(size_t i) const {
    const simulation::GroupPlan& group = plan_.samplers[i];
    const std::string path = fmt::format("samplers.{}.", i);
    const double share = group.tokens_per_second / static_cast<double>(group.max_sequences);
    const double alone = group.alone_tokens_per_second.value_or(share);
    if (alone < share || alone > group.tokens_per_second) {
      throw InputError(
          keys_.of(path + "alone_tokens_per_second"),
          fmt::format("{} tokens/s alone, with {} among {} sequences", alone, group.tokens_per_second,
                      group.max_sequences),
          fmt::format("a sequence alone is no slower than among others ({:.6g}), and no faster than all of "
                      "them together",
                      share));
    }
    if (group.capacity && plan_.run.routing != "capacity") {
      throw InputError(keys_.of(path + "capacity"),
                       fmt::format("a fixed share with run.routing = \"{}\"", plan_.run.routing),
                       "only run.routing = \"capacity\" looks at shares");
    }
  }

  void check_compare() const {
    if (plan_.compare.replicas && plan_.compare.homogeneous.empty()) {
      throw InputError(keys_.of("compare.replicas"), "compare.replicas without compare.homogeneous",
                       "name the groups that it is for");
    }
    std::vector<std::string> names;
    for (const simulation::GroupPlan& group : plan_.samplers) names.push_back(group.name);
    for (const std::string& name : plan_.compare.homogeneous) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      throw InputError(keys_.of("compare.homogeneous"), fmt::format("there is no sampler group '{}'", name),
                       "allowed: " + join(names, ", "), nearest_name(name, names));
    }
  }

  simulation::FleetPlan plan_;
  KeyPositions keys_;
};

}  // namespace

simulation::FleetPlan load_fleet(const std::filesystem::path& file, std::optional<uint64_t> seed) {
  simulation::FleetPlan plan = FleetLoader(read_toml_file(file), file.string()).take();
  if (seed) plan.seed = *seed;
  return plan;
}

}  // namespace motley::app
