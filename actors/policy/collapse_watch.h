// Signs that a run is collapsing, from its metrics alone: each a named alarm, with what to do about it. Free of actors:
// one object sees every update's row in order, and its state goes into the checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "algos/learner.h"

namespace motley::actors {

/// [watch] of an experiment. Actions: "off", "warn" (a message), "checkpoint" (and save), "stop" (and end the run).
struct WatchOptions {
  int64_t window = 20;  // updates that a level or a present value is taken over
  std::string reward = "warn";
  double reward_drop = 0.25;  // of the best window's mean
  std::string kl = "warn";
  double kl_factor = 3.0;
  std::string format_error = "warn";
  double format_error_share = 0.5;
  std::string grad_norm = "warn";
  double grad_norm_factor = 10.0;
  std::string tail_ratio = "warn";
  double tail_ratio_factor = 5.0;
};

inline constexpr const char* kWatched = "watch";  // RunState::extra

struct Alarm {
  std::string name, action, cause;
};

/// In terms of the last `window` rows that have the metric, w:
///   reward      mean of reward/mean below its best mean over any w rows in a row, by reward_drop of that and by four
///               standard errors of the difference (from the spread inside the two windows). While there are fewer rows
///               than w, all of them are the window, from a quarter of w (and four rows) on
///   kl          median of kl/k3 above kl_factor x its level: its median when staleness/max had set no new record for w
///               rows, after the learning rate's warm-up. A level below 1e-6 counts as that.
///   format_error  mean of episode/format_error above format_error_share, once it has been at or below it
///   grad_norm   one row above grad_norm_factor x the highest median over any w rows before it
///   tail_ratio  median of mass/log_tail_ratio_median outside +- log tail_ratio_factor
/// A row without the metric, or where it is no finite number, leaves an alarm as it is.
class CollapseWatch {
 public:
  /// `warmup_updates`: of the learning rate.
  CollapseWatch(WatchOptions options, int64_t warmup_updates);
  /// Adds alarm/<name>, 0 or 1, for every alarm that is not off, and gives those that were not raised a row before. A
  /// row without samples (the one before the first update) is left alone.
  std::vector<Alarm> observe(algos::Metrics& row);
  /// restore(state()) changes nothing. Throws std::invalid_argument for text that state() does not write.
  std::string state() const;
  void restore(const std::string& state);

 private:
  static constexpr size_t kAlarms = 5, kNumbers = 3;
  struct Memory {
    bool raised = false;
    std::array<double, kNumbers> numbers{};  // what an alarm keeps besides its window
    std::vector<double> window;              // the last values, at most options_.window
  };
  void remember(Memory& memory, double value) const;
  bool full(const Memory& memory) const { return static_cast<int64_t>(memory.window.size()) == options_.window; }
  // Each takes the row's value into its memory and gives the cause if the alarm is raised, else nothing.
  std::string reward(Memory& memory, double value) const;
  std::string kl(Memory& memory, double value, double staleness) const;
  std::string format_error(Memory& memory, double value) const;
  std::string grad_norm(Memory& memory, double value) const;
  std::string tail_ratio(Memory& memory, double value) const;
  std::string judge(size_t alarm, const algos::Metrics& row);

  WatchOptions options_;
  int64_t warmup_updates_;
  std::array<Memory, kAlarms> memories_;
};

}  // namespace motley::actors
