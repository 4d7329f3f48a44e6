#include "actors/policy/autoscaling.h"

#include <algorithm>
#include <utility>

namespace motley::actors {
namespace {

constexpr double kAnything = std::numeric_limits<double>::min();  // the least capacity that is not nothing

/// After `change`: replicas that stay, and all that are paid for.
int64_t kept(const ScalingGroup& group, int64_t change) { return group.serving + group.starting + change; }
int64_t held(const ScalingGroup& group, int64_t change) { return kept(group, change) + group.leaving; }

double cost_per_hour(std::span<const ScalingGroup> groups, const ScalingDecision& change) {
  double cost = 0.0;
  for (size_t g = 0; g < groups.size(); ++g)
    cost += groups[g].price_per_hour * static_cast<double>(held(groups[g], change[g]));
  return cost;
}

bool can_start(std::span<const ScalingGroup> groups, const ScalingDecision& change, size_t g, double budget) {
  const ScalingGroup& group = groups[g];
  return group.available && held(group, change[g]) < group.maximum &&
         cost_per_hour(groups, change) + group.price_per_hour <= budget;
}

double price_per_token(const ScalingGroup& group) {
  return group.capacity > 0 ? group.price_per_hour / group.capacity : std::numeric_limits<double>::infinity();
}

/// The dearest per token of the groups that `allowed` takes, the last of equals.
template <class Allowed>
std::optional<size_t> dearest(std::span<const ScalingGroup> groups, const Allowed& allowed) {
  std::optional<size_t> found;
  for (size_t g = 0; g < groups.size(); ++g)
    if (allowed(g) && (!found || price_per_token(groups[g]) >= price_per_token(groups[*found]))) found = g;
  return found;
}

ScalingDecision within_bounds(std::span<const ScalingGroup> groups, double budget) {
  ScalingDecision change(groups.size(), 0);
  for (size_t g = 0; g < groups.size(); ++g) change[g] = std::min<int64_t>(0, groups[g].maximum - kept(groups[g], 0));
  while (cost_per_hour(groups, change) > budget) {
    const auto stop =
        dearest(groups, [&](size_t g) { return groups[g].price_per_hour > 0 && kept(groups[g], change[g]) > 0; });
    if (!stop) break;
    --change[*stop];
  }
  for (size_t g = 0; g < groups.size(); ++g)
    while (kept(groups[g], change[g]) < groups[g].minimum && can_start(groups, change, g, budget)) ++change[g];
  return change;
}

/// Tokens per second and slots.
std::pair<double, double> serving(std::span<const ScalingGroup> groups) {
  double capacity = 0.0, slots = 0.0;
  for (const ScalingGroup& group : groups) {
    capacity += group.capacity * static_cast<double>(group.serving);
    slots += static_cast<double>(group.slots * group.serving);
  }
  return {capacity, slots};
}

bool any(const ScalingDecision& change) {
  return std::any_of(change.begin(), change.end(), [](int64_t each) { return each != 0; });
}

}  // namespace

void grow(std::span<const ScalingGroup> groups, double capacity, double wanted, double budget_per_hour,
          ScalingDecision& change) {
  while (capacity < wanted) {
    std::optional<size_t> best;
    double lowest = 0.0;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].capacity <= 0 || !can_start(groups, change, g, budget_per_hour)) continue;
      const double price = groups[g].price_per_hour / std::min(groups[g].capacity, wanted - capacity);
      const bool sooner = best && price == lowest && groups[g].start_seconds < groups[*best].start_seconds;
      if (best && price >= lowest && !sooner) continue;
      best = g;
      lowest = price;
    }
    if (!best) return;
    ++change[*best];
    capacity += groups[*best].capacity;
  }
}

void shrink(std::span<const ScalingGroup> groups, double wanted, double wanted_slots, ScalingDecision& change) {
  auto [capacity, slots] = serving(groups);
  while (true) {
    const auto stop = dearest(groups, [&](size_t g) {
      return kept(groups[g], change[g]) > groups[g].minimum && groups[g].serving + change[g] > 0 &&
             capacity - groups[g].capacity >= wanted && slots - static_cast<double>(groups[g].slots) >= wanted_slots;
    });
    if (!stop) return;
    --change[*stop];
    capacity -= groups[*stop].capacity;
    slots -= static_cast<double>(groups[*stop].slots);
  }
}

bool Autoscaler::patient(std::optional<double>& since, bool condition, double now, double patience) {
  if (!condition) {
    since.reset();
    return false;
  }
  if (!since) since = now;
  return now - *since >= patience;
}

ScalingDecision Autoscaler::decide(double now, std::span<const ScalingGroup> groups, const FleetLoad& load) {
  ScalingDecision change = within_bounds(groups, options_.budget_per_hour);
  reason_ = Reason::bounds;
  const bool starting = std::any_of(groups.begin(), groups.end(), [](const auto& group) { return group.starting > 0; });
  const bool nothing = std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group.serving == 0; });
  if (nothing && !starting && !any(change)) {
    reason_ = Reason::nothing_serves;
    grow(groups, 0.0, kAnything, options_.budget_per_hour, change);
  }
  if (nothing || starting || any(change)) {
    small_since_.reset();
    large_since_.reset();
  } else if (load.since >= changed_) {
    judge(now, groups, load, change);
  }
  if (starting || any(change)) changed_ = now;
  return change;
}

void Autoscaler::judge(double now, std::span<const ScalingGroup> groups, const FleetLoad& load,
                       ScalingDecision& change) {
  const auto [capacity, slots] = serving(groups);
  const double hunger = std::clamp(load.hunger, 0.0, 1.0);
  const auto idle = [](double used, double of) { return of > 0 ? std::clamp(1.0 - used / of, 0.0, 1.0) : 0.0; };
  const double idle_tokens = idle(load.used, capacity), idle_slots = idle(static_cast<double>(load.sessions), slots);
  const bool small = hunger > options_.hunger && (idle_tokens < options_.busy_idle || load.queued > 0);
  const bool large = !small && std::min(idle_tokens, idle_slots) > options_.spare_idle && load.queued == 0;
  most_sessions_ = large_since_ ? std::max(most_sessions_, load.sessions) : load.sessions;
  reason_ = small ? Reason::too_small : Reason::too_large;
  if (patient(small_since_, small, now, options_.grow_after)) {
    const double factor = std::min(options_.growth_limit, 1.0 / std::max(1.0 - hunger, 1e-9));
    grow(groups, capacity, std::max(kAnything, capacity * factor), options_.budget_per_hour, change);
  }
  if (patient(large_since_, large, now, options_.shrink_after))
    shrink(groups, std::max(kAnything, load.used / (1.0 - options_.target_idle)),
           static_cast<double>(most_sessions_) / (1.0 - options_.target_idle), change);
}

}  // namespace motley::actors
