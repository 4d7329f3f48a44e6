#include "actors/policy/instance_ledger.h"

#include <algorithm>
#include <cmath>

namespace motley::actors {

void InstanceLedger::forget(std::map<int64_t, Entry>::iterator entry) {
  gone_.insert(entry->first);
  entries_.erase(entry);
}

int64_t InstanceLedger::order(double now) {
  entries_[++last_] = {.state = State::ordered, .since = now};
  return last_;
}

void InstanceLedger::adopt(int64_t number, double now) {
  last_ = std::max(last_, number);
  if (gone_.contains(number)) return;
  entries_.try_emplace(number, Entry{.state = State::starting, .since = now});
}

bool InstanceLedger::started(int64_t number, double now) {
  const auto found = entries_.find(number);
  if (found == entries_.end() || found->second.state != State::ordered) return false;
  Entry& entry = found->second;
  entry.state = entry.wanted ? State::starting : State::stopping;
  entry.since = now;
  return !entry.wanted;
}

std::string InstanceLedger::failed(double now, const std::string& cause) {
  if (failures_ == 0) first_cause_ = cause;
  ++failures_;
  const double pause = limits_.backoff * std::pow(2.0, static_cast<double>(failures_ - 1));
  again_at_ = now + pause;
  const std::string count = std::to_string(failures_) + " of " + std::to_string(limits_.most_failures);
  return given_up() ? cause + " (" + count + "): no more of this group are started in this run"
                    : cause + " (" + count + "): again in " + std::to_string(std::lround(pause)) + " s at the earliest";
}

std::string InstanceLedger::failed(int64_t number, double now, const std::string& cause) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return "";
  const Entry entry = found->second;
  forget(found);
  if (entry.state == State::draining || entry.state == State::stopping || !entry.wanted) return "";
  return entry.proven ? cause : failed(now, cause);
}

void InstanceLedger::see(double now, const std::map<int64_t, uint64_t>& serving) {
  for (auto& [number, entry] : entries_) {
    const auto found = serving.find(number);
    if (found != serving.end()) {
      entry.replica = found->second;
      if (entry.state == State::ordered || entry.state == State::starting) {
        entry.state = State::serving;
        entry.since = now;
      } else if (entry.state == State::serving && now - entry.since >= limits_.young_seconds) {
        entry.proven = true;
        failures_ = 0;
      }
    } else if (entry.state == State::serving) {
      entry.state = State::starting;
      entry.since = now;
      entry.replica.reset();
    } else if (entry.state == State::draining) {
      entry.state = State::stopping;
    }
  }
}

bool InstanceLedger::retire(int64_t number, double now) {
  Entry& entry = entries_.at(number);
  if (entry.state == State::ordered) {
    entry.wanted = false;
    return false;
  }
  entry.state = entry.state == State::serving ? State::draining : State::stopping;
  entry.since = now;
  return true;
}

std::vector<InstanceLedger::Due> InstanceLedger::due(double now) {
  std::vector<Due> all;
  for (auto& [number, entry] : entries_) {
    std::string text;
    if (entry.state == State::draining && now - entry.since >= limits_.drain_seconds) entry.state = State::stopping;
    if (entry.state == State::starting && now - entry.since >= limits_.join_seconds) {
      entry.state = State::stopping;
      text = failed(now, "it did not come within " + std::to_string(std::lround(limits_.join_seconds)) + " s");
    }
    if (entry.state != State::stopping || entry.asked) continue;
    entry.asked = true;
    all.push_back({number, text});
  }
  return all;
}

std::string InstanceLedger::stopped(int64_t number, const std::string& failure) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return "";
  Entry& entry = found->second;
  entry.asked = false;
  if (!failure.empty() && ++entry.stops < limits_.most_stops) return "";
  forget(found);
  return failure.empty() ? "" : "it could not be stopped, and may still run and cost: " + failure;
}

std::vector<int64_t> InstanceLedger::missing(double now, const std::vector<int64_t>& listed) const {
  constexpr double kListed = 30.0;  // a listing may be that late
  std::vector<int64_t> all;
  for (const auto& [number, entry] : entries_)
    if (entry.state == State::starting && now - entry.since >= kListed &&
        std::find(listed.begin(), listed.end(), number) == listed.end())
      all.push_back(number);
  return all;
}

std::optional<int64_t> InstanceLedger::victim(const std::map<uint64_t, int64_t>& sessions) const {
  std::optional<int64_t> best;
  std::pair<int, int64_t> lowest;
  for (const auto& [number, entry] : entries_) {
    if (entry.state == State::draining || entry.state == State::stopping || !entry.wanted) continue;
    std::pair<int, int64_t> rank{entry.state == State::ordered ? 0 : 1, 0};
    if (entry.state == State::serving) {
      const auto found = entry.replica ? sessions.find(*entry.replica) : sessions.end();
      rank = {2, found == sessions.end() ? 0 : found->second};
    }
    if (best && rank > lowest) continue;  // of equals the last that was started
    best = number;
    lowest = rank;
  }
  return best;
}

std::optional<uint64_t> InstanceLedger::replica(int64_t number) const {
  const auto found = entries_.find(number);
  return found == entries_.end() ? std::nullopt : found->second.replica;
}

bool InstanceLedger::leaving(int64_t number) const {
  const auto found = entries_.find(number);
  return found != entries_.end() && (found->second.state == State::draining || found->second.state == State::stopping);
}

InstanceLedger::Counts InstanceLedger::counts() const {
  Counts counts;
  for (const auto& [number, entry] : entries_) {
    if (entry.state == State::draining || entry.state == State::stopping || !entry.wanted)
      ++counts.leaving;
    else if (entry.state == State::serving)
      ++counts.serving;
    else
      ++counts.starting;
  }
  return counts;
}

}  // namespace motley::actors
