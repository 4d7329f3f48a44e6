// One sampler's engine in simulated time: continuous batching, in which every running sequence gets one token per step
// and a step takes a fixed time and a time per sequence. O(log slots) per change: between two changes nothing is
// computed (a virtual clock of steps, as in the analysis of processor sharing).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace motley::simulation {

struct EngineSpeed {
  double step_seconds = 0.0;      // of a step, whatever its batch
  double sequence_seconds = 0.0;  // of a step, for each sequence in it; the sum of both is above 0
  double prefill_seconds = 0.0;   // for each token that is read
  int64_t slots = 1;
  double step(int64_t batch) const { return step_seconds + sequence_seconds * static_cast<double>(batch); }
  double capacity() const { return static_cast<double>(slots) / step(slots); }
};

class ReplicaModel {
 public:
  ReplicaModel(const EngineSpeed& speed, double now, uint64_t version) : speed_(speed), time_(now), version_(version) {}

  struct Reply {
    uint32_t session = 0;
    int64_t tokens = 0;          // drawn
    uint64_t first_version = 0;  // of the weights that drew the first of them
    double version_sum = 0.0;    // of their versions
  };
  /// A reply of `tokens` (at least 1) after `prefill` tokens that are read; it waits if all slots are taken.
  void submit(double now, uint32_t session, int64_t tokens, double prefill);
  /// When the next reply ends if nothing comes in between.
  std::optional<double> next() const;
  /// Gives the replies that have ended by `now`, and lets waiting ones in.
  void take_ended(double now, std::vector<Reply>& ended);
  /// Gives all replies with what has been drawn of them, and is empty.
  std::vector<Reply> interrupt(double now);
  /// New weights for every token whose step begins from now on, after standing still for `pause` seconds.
  void swap(double now, uint64_t version, double pause);
  void advance(double now);

  int64_t sessions() const { return static_cast<int64_t>(running_.size() + waiting_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  double capacity() const { return speed_.capacity(); }
  /// Since the start, as of the last advance: seconds with at least one sequence, and tokens drawn.
  double busy_seconds() const { return busy_; }
  double tokens() const { return tokens_; }

 private:
  struct Running {
    double end = 0.0, begin = 0.0;  // on the clock of steps
    double versions_before = 0.0;   // the integral of the version over the clock, at `begin`
    uint32_t session = 0;
    uint64_t first_version = 0;
    bool operator>(const Running& other) const { return end != other.end ? end > other.end : session > other.session; }
  };
  struct Waiting {
    uint32_t session = 0;
    int64_t tokens = 0;
    double prefill = 0.0;
  };
  /// It joins when the step that is under way ends, and not before `earliest` on the clock of steps.
  void begin(const Waiting& reply, double earliest);
  /// Of sequences in the step that is under way: those that joined since wait for its end.
  int64_t batch() const { return static_cast<int64_t>(running_.size()) - joining_; }
  /// Moves the clock by steps of the present batch.
  void move(double steps);
  /// Of a reply of which everything up to `clock` has been drawn.
  Reply drawn(const Running& running, double clock, double versions) const;

  EngineSpeed speed_;
  double time_ = 0.0, paused_until_ = 0.0;
  double clock_ = 0.0, versions_ = 0.0;  // steps, and the integral of the version over them
  double busy_ = 0.0, tokens_ = 0.0;
  uint64_t version_ = 0;
  int64_t joining_ = 0;           // of those running, from join_at_ on
  double join_at_ = 0.0;          // on the clock: where the step that is under way ends
  std::vector<Running> running_;  // a heap: the one that ends first is at the front
  std::deque<Waiting> waiting_;
};

}  // namespace motley::simulation
