// The replicas of one group that an autoscaler answers for: what is on its way, what serves, what was told to go, and
// what happens when starts fail. Pure: time is an argument, in seconds that never fall.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace motley::actors {

class InstanceLedger {
 public:
  struct Limits {
    double join_seconds = 600.0;  // from the start until it serves
    double drain_seconds = 30.0;  // for its sessions to be moved before it is stopped
    double young_seconds = 60.0;  // one that ends by itself before it has served so long has failed to start
    double backoff = 10.0;        // after the first failure; doubled after each further one
    int64_t most_failures = 3;    // in a row, then no more are tried
    int64_t most_stops = 3;       // tries to stop an instance
  };
  explicit InstanceLedger(const Limits& limits) : limits_(limits) {}

  /// A new instance, about to be started: its number, which no other has had or will have.
  int64_t order(double now);
  /// One that exists already; as if it had just been started. Nothing happens if it is known, or was.
  void adopt(int64_t number, double now);
  /// It is on its way. True if it must be stopped, since it is no longer wanted.
  bool started(int64_t number, double now);
  /// It could not be started, or has ended by itself. What there is to say about it; empty: nothing.
  std::string failed(int64_t number, double now, const std::string& cause);
  /// The same of the group's tool, before any instance.
  std::string failed(double now, const std::string& cause);

  /// Those that serve now, each with its replica. What serves no more is on its way again: it may come back by itself.
  void see(double now, const std::map<int64_t, uint64_t>& serving);
  /// Tells it to go. False: it is still being started, and started() will ask for it.
  bool retire(int64_t number, double now);
  /// Those whose sessions have had time to move, and those that never came, with what there is to say about each. Each
  /// is to be stopped; it is given again until stopped() or gone() tells of it.
  struct Due {
    int64_t number = 0;
    std::string text;
  };
  std::vector<Due> due(double now);
  /// A try to stop it is over. What there is to say; empty: nothing.
  std::string stopped(int64_t number, const std::string& failure);
  /// The instances that are not among `listed` and should be have ended.
  std::vector<int64_t> missing(double now, const std::vector<int64_t>& listed) const;

  /// The best to stop: what has not come yet, else what has the fewest sessions. Nothing if all go already.
  std::optional<int64_t> victim(const std::map<uint64_t, int64_t>& sessions) const;
  /// Its replica; nothing unless it serves or served when it was told to go.
  std::optional<uint64_t> replica(int64_t number) const;
  bool knows(int64_t number) const { return entries_.contains(number); }
  bool leaving(int64_t number) const;
  struct Counts {
    int64_t serving = 0, starting = 0, leaving = 0;
  };
  Counts counts() const;
  /// Whether one may be started now; and whether ever again.
  bool available(double now) const { return !given_up() && now >= again_at_; }
  bool given_up() const { return failures_ >= limits_.most_failures; }
  const std::string& first_cause() const { return first_cause_; }

 private:
  enum class State : uint8_t { ordered, starting, serving, draining, stopping };
  struct Entry {
    State state = State::ordered;
    double since = 0.0;
    std::optional<uint64_t> replica = std::nullopt;
    bool wanted = true;   // while it is ordered
    bool proven = false;  // it has served for a while
    bool asked = false;   // a try to stop it is under way
    int64_t stops = 0;    // tries that failed
  };

  Limits limits_;
  void forget(std::map<int64_t, Entry>::iterator entry);

  std::map<int64_t, Entry> entries_;
  std::set<int64_t> gone_;  // what is left of them to see for a while brings none back
  int64_t last_ = 0;
  int64_t failures_ = 0;  // in a row
  double again_at_ = 0.0;
  std::string first_cause_;
};

}  // namespace motley::actors
