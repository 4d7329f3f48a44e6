// The trainer of a run whose learner is another process. It holds the last state that it has got, and every batch
// since: whoever takes the seat after a learner that was lost goes on from that state and trains on those batches
// again.
//
// run -> learner: setting, start. Then any number of: batch -> trained, and save -> state; at last release.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>

#include "actors/fleet.h"
#include "actors/remote/learner_seat.h"
#include "actors/remote/learner_wire.h"

namespace motley::actors {

struct RemoteTrainerOptions {
  std::function<void(const std::string&)> say;  // a line for the run's log
  std::function<bool()> stopping;               // nobody is waited for any more
  std::chrono::milliseconds patience{1800000};  // with an empty seat
};

class RemoteTrainer final : public Trainer {
 public:
  /// Goes on from `start`, whose `weights` are there as well. Throws as LocalTrainer for a state that does not fit.
  RemoteTrainer(const Experiment& experiment, const TransformerConfig& model, StartingPoint& start,
                ParametersPtr weights, std::shared_ptr<LearnerSeat> seat, RemoteTrainerOptions options);

  Trained step(const std::vector<algos::Trajectory>& batch) override;
  State state() override;
  bool wants_saving() const override;
  void release() override;

 private:
  struct Batch {
    std::string bytes;
    std::optional<uint64_t> digest;  // of the weights that came of it
  };
  /// What `work` gives, with whatever learner sits there, or comes after one that is lost.
  template <class Work>
  auto with_learner(const Work& work) -> decltype(work());
  void wait_for_learner();
  /// Trains the learner that is there on what it lacks, up to the newest batch: what came of the last.
  std::optional<Trained> catch_up();
  Trained train(uint64_t update);
  /// The body of what must come next. Throws TrainerGone when learners fail again and again.
  std::string answer(FrameKind kind);
  uint64_t newest() const { return kept_.version + batches_.size(); }

  TransformerConfig model_;
  size_t history_length_;
  std::shared_ptr<LearnerSeat> seat_;
  RemoteTrainerOptions options_;
  TrainingState kept_;
  std::deque<Batch> batches_;  // of the updates after kept_
  std::shared_ptr<PeerLine> line_;
  std::optional<uint64_t> reached_;  // by the learner at line_; absent: it has no state yet
  int failures_ = 0;                 // of learners, since the last update that one has done
  bool told_difference_ = false;
};

}  // namespace motley::actors
