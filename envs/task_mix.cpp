#include <algorithm>
#include <cmath>
#include <set>

#include "envs/environment.h"
#include "envs/schedule.h"
#include "envs/shuffle.h"
#include "kernels/philox.h"

namespace motley::envs {

namespace {

uint64_t entry_seed(uint64_t seed, size_t entry) {
  return kernels::mix(kernels::mix(seed, static_cast<uint64_t>(kernels::Purpose::data)), entry);
}

// Held-out problems are the same in every run, whatever its seed.
constexpr uint64_t kHeldOutSeed = 0;

}  // namespace

TaskMix::TaskMix(std::vector<Entry> entries, uint64_t seed, bool trains) : entries_(std::move(entries)), seed_(seed) {
  if (entries_.empty()) throw TaskError("an experiment needs at least one task");
  std::set<std::string> names;
  std::vector<double> weights;
  double sum = 0;
  for (const Entry& entry : entries_) {
    if (!entry.task) throw std::invalid_argument("task " + entry.name + " was not made");
    if (!names.insert(entry.name).second) throw TaskError("two tasks of the mix are named " + entry.name);
    if (!(entry.weight > 0) || !std::isfinite(entry.weight)) {
      throw TaskError("task " + entry.name + ": weight is " + std::to_string(entry.weight) +
                      "; it must be positive and finite");
    }
    for (const bool held_out : {false, true}) {
      if ((held_out || trains) && entry.task->epoch_size(held_out) == uint64_t{0}) {
        throw TaskError("task " + entry.name + " has no " + (held_out ? "held-out" : "training") + " problems");
      }
    }
    weights.push_back(entry.weight);
    sum += entry.weight;
  }
  if (!std::isfinite(sum)) throw TaskError("the sum of the tasks' weights is not finite");
  schedule_ = std::make_shared<const Schedule>(std::move(weights));
}

TaskMix::Pick TaskMix::training(uint64_t n) const {
  const auto [entry, earlier] = schedule_->at(n);
  const Task& task = *entries_[entry].task;
  const uint64_t seed = entry_seed(seed_, entry);
  Pick pick{entry, 0, earlier, {}};
  if (const auto size = task.epoch_size(false)) {
    pick.epoch = earlier / *size;
    pick.index = shuffled(earlier % *size, *size, kernels::mix(seed, pick.epoch));
  }
  pick.problem = task.problem(seed, pick.index, false);
  return pick;
}

TaskMix::Pick TaskMix::held_out(uint64_t n) const {
  const auto [entry, earlier] = schedule_->at(n);
  return held_out_problem(entry, earlier);
}

TaskMix::Pick TaskMix::held_out_problem(size_t entry, uint64_t earlier) const {
  const Task& task = *entries_[entry].task;
  Pick pick{entry, 0, earlier, {}};
  if (const auto size = task.epoch_size(true)) {
    pick.epoch = earlier / *size;
    pick.index = earlier % *size;
  }
  pick.problem = task.problem(entry_seed(kHeldOutSeed, entry), pick.index, true);
  return pick;
}

uint64_t TaskMix::held_out_size(uint64_t wanted) const {
  uint64_t high = wanted;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto size = entries_[i].task->epoch_size(true);
    if (!size) continue;
    // The schedule gives an entry at least its share rounded down: beyond this it has come again.
    const double most = (static_cast<double>(*size) + 2) / schedule_->share(i);
    if (most < static_cast<double>(high)) high = static_cast<uint64_t>(most);
  }
  const auto fits = [&](uint64_t n) {
    const std::vector<uint64_t> counts = schedule_->counts(n);
    for (size_t i = 0; i < counts.size(); ++i) {
      const auto size = entries_[i].task->epoch_size(true);
      if (size && counts[i] > *size) return false;
    }
    return true;
  };
  const bool endless = std::none_of(entries_.begin(), entries_.end(),
                                    [](const Entry& entry) { return entry.task->epoch_size(true).has_value(); });
  if (endless) return wanted;
  uint64_t low = 0;  // always fits
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::vector<std::string> TaskMix::held_out_sets() const {
  std::set<std::string> names;
  for (const Entry& entry : entries_)
    for (const auto& [name, places] : entry.task->held_out_sets()) names.insert(name);
  std::vector<std::string> all{kFullSet};
  all.insert(all.end(), names.begin(), names.end());
  return all;
}

std::vector<TaskMix::Pick> TaskMix::held_out_set(const std::string& name, uint64_t wanted) const {
  std::vector<Pick> picks;
  if (name == kFullSet) {
    const uint64_t count = held_out_size(wanted);
    for (uint64_t n = 0; n < count; ++n) picks.push_back(held_out(n));
    return picks;
  }
  std::vector<std::vector<uint64_t>> places;
  size_t longest = 0;
  for (const Entry& entry : entries_) {
    places.push_back(entry.task->held_out_sets()[name]);
    longest = std::max(longest, places.back().size());
  }
  for (size_t round = 0; round < longest; ++round)
    for (size_t entry = 0; entry < places.size(); ++entry)
      if (round < places[entry].size() && picks.size() < wanted)
        picks.push_back(held_out_problem(entry, places[entry][round]));
  if (longest > 0) return picks;
  std::string names;
  for (const std::string& set : held_out_sets()) names += (names.empty() ? "" : ", ") + set;
  throw TaskError("no held-out problem is in a set named " + name + "; there are: " + names);
}

std::string TaskMix::lacking(const Tokenizer& tokenizer) const {
  const Tokenizer wanted = this->tokenizer();
  if (wanted.spells_bytes() && !tokenizer.spells_bytes()) return "symbol for every byte";
  const std::vector<std::string>& symbols = tokenizer.symbols();
  const std::set<std::string_view> known(symbols.begin(), symbols.end());
  for (const std::string& symbol : wanted.symbols())
    if (!known.contains(symbol)) return "symbol \"" + symbol + "\"";
  for (const std::string& marker : wanted.markers())
    if (!tokenizer.marker(marker)) return "special token " + marker;
  return "";
}

Tokenizer TaskMix::tokenizer() const {
  std::set<std::string> seen;
  std::vector<std::string> symbols, markers;
  bool bytes = false;
  const auto add = [&](std::vector<std::string> more, std::vector<std::string>& to) {
    for (std::string& name : more)
      if (seen.insert(name).second) to.push_back(std::move(name));
  };
  for (const Entry& entry : entries_) {
    add(entry.task->symbols(), symbols);
    add(entry.task->markers(), markers);
    bytes = bytes || entry.task->any_bytes();
  }
  return Tokenizer(std::move(symbols), bytes, std::move(markers));
}

}  // namespace motley::envs
