// The learner: collects whole groups, trains on them, publishes weight versions, and writes the run down (trajectories,
// metrics, checkpoints). It paces the run: credits to the environment when asynchronous, one batch at a time in
// lock-step.
#pragma once

#include "actors/messages.h"
#include "actors/policy/collapse_watch.h"
#include "actors/policy/prompt_ledger.h"
#include "actors/run_report.h"
#include "actors/trainer.h"

namespace motley::actors {

class LearnerActor {
 public:
  explicit LearnerActor(caf::event_based_actor* self) : self_(self) {}
  struct Peers {
    caf::actor plane, router, evaluator, supervisor, observer, autoscaler;  // no autoscaler: null
  };
  caf::behavior start(FleetPtr fleet, StartingPointPtr start, Peers peers);

 private:
  enum class Phase : uint8_t { starting, collecting, closing, waiting_for_weights, ended };

  void set_up();
  void publish(uint64_t version, const ParametersPtr& snapshot, bool live);
  /// Goes on when what it waited for has come: the fleet, or the weights of a lock-step update.
  void proceed();
  void collect();
  void try_take();
  /// Lock-step: asks for the next `prompts` of this update.
  void issue(int64_t prompts);
  /// Drops groups of equal rewards, and asks for others in their place. False while those may still come.
  bool enough_unequal();
  /// The groups leave the collector: room for others, and at the next take their prompts are consumed.
  void release(const std::vector<TrajectoryGroup>& groups);
  void add_drawn(algos::Metrics& metrics, const std::vector<algos::Trajectory>& batch);
  void train(const std::vector<TrajectoryGroup>& groups);
  void record(const std::vector<algos::Trajectory>& batch, int64_t update) const;
  void evaluate();
  bool evaluation_due(uint64_t update) const;
  /// The update's row waits for the rates of the groups, and for an evaluation that belongs into it.
  void open_row(algos::Metrics metrics);
  void try_close_row();
  /// What the alarms that were just raised ask for.
  void heed(const std::vector<Alarm>& alarms);
  /// What a checkpoint would hold goes into kept_; false: the trainer is gone, and kept_ is what it was.
  bool keep();
  void write_kept();
  void save();
  /// The trainer that computes elsewhere may go.
  void let_go();
  void finish();
  bool last_update() const { return version_ >= static_cast<uint64_t>(fleet_->experiment.run.updates); }

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  StartingPointPtr start_;
  Peers peers_;
  caf::actor environment_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<GroupCollector> collector_;
  std::optional<RunReport> report_;
  std::optional<CollapseWatch> watch_;
  std::string stopping_alarm_;  // not empty: it ends the run
  PromptLedger ledger_;
  Phase phase_ = Phase::starting;
  uint64_t version_ = 0;
  std::optional<uint64_t> live_version_;  // lock-step: what the samplers are ready for
  bool fleet_ready_ = false, issuing_ = false, stopping_ = false;
  int64_t dropped_ = 0;  // samples, since the last update
  // Of the update that is being collected: lock-step's prompts, groups that left the collector untaken, and those of
  // them that had equal rewards.
  uint64_t first_prompt_ = 0;
  int64_t issued_ = 0, removed_ = 0;
  std::vector<TrajectoryGroup> equal_;
  std::vector<uint64_t> released_;  // prompts; a stop before the take leaves them to the resumed run
  ParametersPtr snapshot_;          // of version_
  algos::Metrics row_;
  std::optional<GroupCounters> counters_;
  std::optional<double> roll_out_seconds_;  // of the last version that every sampler got, not yet in a row
  bool evaluating_ = false, row_waits_for_evaluation_ = false;
  MetricsPtr evaluation_;  // finished, not yet in a row
  struct Kept {
    RunState books;
    Trainer::State trainer;
  };
  std::optional<Kept> kept_;  // of the last state that a trainer elsewhere has given
  std::string gone_;          // not empty: why the trainer is gone
  bool leaving_ = false;      // the trainer would like to go
  std::optional<uint64_t> saved_version_;
  std::filesystem::path checkpoint_;
};

caf::behavior learner(caf::stateful_actor<LearnerActor>* self, FleetPtr fleet, StartingPointPtr start,
                      LearnerActor::Peers peers);

}  // namespace motley::actors
