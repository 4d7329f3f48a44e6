// The keys of an autoscaler that an experiment and a simulated fleet have in common, and what several of them together
// make impossible.
#pragma once

#include <fmt/format.h>

#include "app/experiment_toml.h"
#include "app/schema_field.h"

namespace motley::app {

/// Of [[samplers]]. `Target` has samplers with minimum, maximum and start_seconds.
template <class Target>
std::vector<BasicField<Target>> group_bound_fields() {
  using T = Target;
  constexpr double kMostReplicas = 1e5, kLongest = 1e7;
  return {
      field<T>(
          "samplers", "minimum", [](T & t, size_t i) -> auto& { return t.samplers.at(i).minimum; },
          "replicas that the autoscaler leaves")
          .between(0, kMostReplicas)
          .defaults_to("replicas"),
      field<T>(
          "samplers", "maximum", [](T & t, size_t i) -> auto& { return t.samplers.at(i).maximum; },
          "replicas that the autoscaler may have")
          .between(0, kMostReplicas)
          .defaults_to("replicas"),
      field<T>(
          "samplers", "start_seconds", [](T & t, size_t i) -> auto& { return t.samplers.at(i).start_seconds; },
          "until a replica that is started, or replaced, serves")
          .between(0, kLongest),
  };
}

/// Of [autoscaler]. `Target` has an AutoscalerPlan of that name.
template <class Target>
std::vector<BasicField<Target>> autoscaler_fields() {
  using T = Target;
  return {
      field<T>(
          "autoscaler", "every_seconds", [](T & t, size_t) -> auto& { return t.autoscaler.every_seconds; },
          "between two decisions")
          .between(1, 1e6),
      field<T>(
          "autoscaler", "budget_per_hour", [](T & t, size_t) -> auto& { return t.autoscaler.budget_per_hour; },
          "that the fleet never costs more than")
          .between(0, 1e9)
          .defaults_to("no limit"),
      field<T>(
          "autoscaler", "hunger", [](T & t, size_t) -> auto& { return t.autoscaler.options.hunger; },
          "share of its time that the learner may wait for samples")
          .below(0, 1),
      field<T>(
          "autoscaler", "busy_idle", [](T & t, size_t) -> auto& { return t.autoscaler.options.busy_idle; },
          "the fleet is busy while less than this share of its capacity is idle")
          .between(0, 1),
      field<T>(
          "autoscaler", "spare_idle", [](T & t, size_t) -> auto& { return t.autoscaler.options.spare_idle; },
          "and has too much while more than this is")
          .between(0, 1),
      field<T>(
          "autoscaler", "target_idle", [](T & t, size_t) -> auto& { return t.autoscaler.options.target_idle; },
          "what a shrink aims at")
          .below(0, 1),
      field<T>(
          "autoscaler", "grow_after", [](T & t, size_t) -> auto& { return t.autoscaler.options.grow_after; },
          "seconds for which the fleet must have been too small")
          .between(0, 1e7),
      field<T>(
          "autoscaler", "shrink_after", [](T & t, size_t) -> auto& { return t.autoscaler.options.shrink_after; },
          "seconds for which it must have been too large")
          .between(0, 1e7),
      field<T>(
          "autoscaler", "growth_limit", [](T & t, size_t) -> auto& { return t.autoscaler.options.growth_limit; },
          "factor on the capacity at one decision")
          .above(1, 1000),
  };
}

/// Throws InputError. `groups`: with name, replicas, minimum, maximum and price_per_hour.
template <class Groups>
void check_autoscaling(const actors::AutoscalerPlan& plan, const Groups& groups, const KeyPositions& keys) {
  double least = 0.0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& group = groups[i];
    const int64_t minimum = group.minimum.value_or(group.replicas), maximum = group.maximum.value_or(group.replicas);
    const std::string path = fmt::format("samplers.{}.", i);
    for (const char* bound : {"minimum", "maximum"}) {
      if (plan.enabled || !keys.given(path + bound)) continue;
      throw InputError(keys.of(path + bound), fmt::format("a {} without an autoscaler", bound),
                       "it has no effect without a section [autoscaler]");
    }
    if (minimum > maximum) {
      throw InputError(keys.of(path + (group.minimum ? "minimum" : "maximum")),
                       fmt::format("group '{}' has at least {} and at most {} replicas", group.name, minimum, maximum),
                       "the minimum is at most the maximum; each is replicas unless given");
    }
    least += group.price_per_hour * static_cast<double>(minimum);
  }
  if (!plan.enabled) return;
  const actors::AutoscalerOptions& options = plan.options;
  if (!(options.busy_idle < options.target_idle && options.target_idle < options.spare_idle)) {
    throw InputError(keys.of("autoscaler"),
                     fmt::format("busy_idle {}, target_idle {}, spare_idle {}", options.busy_idle, options.target_idle,
                                 options.spare_idle),
                     "they must rise in this order, or the fleet would grow and shrink in turn");
  }
  if (plan.budget_per_hour && least > *plan.budget_per_hour) {
    throw InputError(
        keys.of("autoscaler.budget_per_hour"),
        fmt::format("a budget of {} per hour; the minima of the groups cost {}", *plan.budget_per_hour, least),
        "raise it, or lower minima");
  }
}

/// What an experiment has beside those (app/autoscaler_fields.cpp).
std::vector<Field> experiment_autoscaler_fields();
/// Sets what follows from the way in which groups are provisioned.
void resolve_autoscaler(Experiment& experiment, const KeyPositions& keys);
void check_autoscaler(const Experiment& experiment, const KeyPositions& keys);

}  // namespace motley::app
