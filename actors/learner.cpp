#include "actors/learner.h"

#include <algorithm>

#include "actors/local_trainer.h"
#include "actors/policy/keep.h"
#include "actors/policy/learner_state.h"
#include "actors/remote/remote_trainer.h"
#include "actors/system.h"
#include "actors/trajectory_file.h"

namespace motley::actors {

caf::behavior LearnerActor::start(FleetPtr fleet, StartingPointPtr start, Peers peers) {
  fleet_ = std::move(fleet);
  start_ = std::move(start);
  peers_ = std::move(peers);
  return {
      [this](const Begin& message) {
        environment_ = message.environment;
        set_up();
      },
      [this](FleetReady) {
        fleet_ready_ = true;
        proceed();
      },
      [this](const Published& published) {
        live_version_ = published.version;
        proceed();
      },
      [this](const RolledOut& rolled) { roll_out_seconds_ = static_cast<double>(rolled.nanoseconds) * 1e-9; },
      [this](const EpisodeDone&, const TrajectoryPtr& trajectory) {
        collector_->add(trajectory);
        if (phase_ == Phase::collecting) try_take();
      },
      [this](const Evaluated&, const MetricsPtr& metrics) {
        evaluating_ = false;
        evaluation_ = metrics;
        if (phase_ == Phase::closing) try_close_row();
      },
      [this](LearnerLeaves) {
        leaving_ = true;
        if (phase_ != Phase::closing) let_go();
      },
      [this](StopRun) {
        stopping_ = true;
        if (trainer_ && phase_ != Phase::closing && phase_ != Phase::ended) finish();
      },
  };
}

void LearnerActor::set_up() {
  const Experiment& experiment = fleet_->experiment;
  version_ = start_->state.version;
  if (fleet_->resumed_from) {
    saved_version_ = version_;
    checkpoint_ = *fleet_->resumed_from;
  }
  const auto unfinished = start_->state.extra.find(kUnfinished);
  ledger_ = PromptLedger(start_->state.next_prompt, unfinished == start_->state.extra.end()
                                                        ? std::vector<uint64_t>{}
                                                        : numbers_from_text(unfinished->second));
  collector_.emplace(experiment.algo.group_size, fleet_->lock_step());
  report_.emplace(experiment);
  watch_.emplace(experiment.watch, experiment.trainer.warmup_updates);
  if (const auto watched = start_->state.extra.find(kWatched); watched != start_->state.extra.end())
    watch_->restore(watched->second);
  const size_t past = start_->history.size();
  for (size_t i = 0; i < past; ++i) publish(version_ - (past - i), start_->history[i], false);
  snapshot_ = std::make_shared<const Parameters>(start_->parameters.clone(Device{}));
  publish(version_, snapshot_, true);
  if (fleet_->seat) {
    trainer_ = std::make_unique<RemoteTrainer>(
        experiment, fleet_->model, *start_, snapshot_, fleet_->seat,
        RemoteTrainerOptions{.say = [this](const std::string& text) { self_->send(peers_.observer, Note{text}); },
                             .stopping = [this] { return fleet_->stopping.load(); },
                             .patience = std::chrono::seconds(experiment.run.learner_patience)});
    start_.reset();
    keep();
  } else {
    trainer_ = std::make_unique<LocalTrainer>(experiment, fleet_->model, start_, snapshot_);
  }
  if (stopping_) finish();
}

void LearnerActor::publish(uint64_t version, const ParametersPtr& snapshot, bool live) {
  self_->send(peers_.plane, Publish{version, live}, snapshot);
}

void LearnerActor::proceed() {
  if (!fleet_ready_ || (fleet_->lock_step() && live_version_ != version_)) return;
  if (phase_ == Phase::waiting_for_weights) {
    collect();
  } else if (phase_ == Phase::starting) {
    if (last_update() || stopping_ || (fleet_->stop_after && version_ >= static_cast<uint64_t>(*fleet_->stop_after))) {
      finish();
    } else if (fleet_->resumed_from) {
      collect();
    } else {
      evaluate();
      open_row({});
    }
  }
}

void LearnerActor::collect() {
  phase_ = Phase::collecting;
  report_->enter(RunReport::Phase::wait);
  if (peers_.autoscaler) self_->send(peers_.autoscaler, LearnerWaits{});
  if (fleet_->lock_step()) {
    first_prompt_ = ledger_.next();
    issued_ = 0;
    issue(fleet_->experiment.algo.prompts);
  } else if (!std::exchange(issuing_, true)) {
    self_->send(environment_, StartIssuing{ledger_.next(), ledger_.unfinished()});
  }
  try_take();
}

void LearnerActor::try_take() {
  const int64_t prompts = fleet_->experiment.algo.prompts, group_size = fleet_->experiment.algo.group_size;
  if (fleet_->lock_step() && removed_ + collector_->complete() < issued_) return;
  if (const auto limit = fleet_->experiment.run.max_staleness) {
    const std::vector<TrajectoryGroup> dropped = collector_->drop_stale(version_, *limit);
    dropped_ += static_cast<int64_t>(dropped.size()) * group_size;
    release(dropped);
  }
  int64_t wanted = fleet_->lock_step() ? collector_->complete() : prompts;
  if (too_many_dropped(dropped_, wanted * group_size))
    throw std::runtime_error("more than half of the samples of update " + std::to_string(version_ + 1) + " (" +
                             std::to_string(dropped_) + ") were dropped as older than run.max_staleness");
  if (fleet_->experiment.algo.drop_equal_groups) {
    if (!enough_unequal()) return;
    wanted = std::min(prompts, collector_->complete());
  }
  if (collector_->complete() < wanted) return;
  std::vector<TrajectoryGroup> taken = collector_->take(wanted);
  release(taken);
  if (taken.empty()) {  // nothing but equal groups, after as many draws as are allowed
    const auto end = equal_.begin() + std::min<int64_t>(prompts, static_cast<int64_t>(equal_.size()));
    taken.assign(std::make_move_iterator(equal_.begin()), std::make_move_iterator(end));
    equal_.erase(equal_.begin(), end);
  }
  for (const uint64_t prompt : std::exchange(released_, {})) ledger_.consume(prompt);
  train(taken);
}

void LearnerActor::issue(int64_t prompts) {
  self_->send(environment_, IssueBatch{first_prompt_ + static_cast<uint64_t>(issued_), static_cast<uint64_t>(prompts)});
  issued_ += prompts;
}

bool LearnerActor::enough_unequal() {
  const bool by_turn = fleet_->experiment.algo.advantage_level == "turn";
  std::vector<TrajectoryGroup> dropped =
      collector_->drop_if([by_turn](const TrajectoryGroup& group) { return equal_rewards(group, by_turn); });
  release(dropped);
  std::move(dropped.begin(), dropped.end(), std::back_inserter(equal_));
  const AlgoOptions& algo = fleet_->experiment.algo;
  const int64_t complete = collector_->complete(), drawn = complete + static_cast<int64_t>(equal_.size());
  if (complete >= algo.prompts) return true;
  const int64_t allowed = algo.drop_limit * algo.prompts;
  if (drawn < allowed) {
    if (fleet_->lock_step()) issue(std::min(algo.prompts - complete, allowed - drawn));
    return false;
  }
  self_->send(peers_.observer,
              Note{"update " + std::to_string(version_ + 1) + ": only " + std::to_string(complete) + " of " +
                   std::to_string(drawn) +
                   " groups drawn have unequal rewards (algo.drop_limit = " + std::to_string(algo.drop_limit) +
                   "); it goes on with " + (complete > 0 ? "those" : "a batch of equal ones, which teaches nothing")});
  return true;
}

void LearnerActor::release(const std::vector<TrajectoryGroup>& groups) {
  if (groups.empty()) return;
  removed_ += static_cast<int64_t>(groups.size());
  for (const TrajectoryGroup& group : groups) released_.push_back(group.id);
  if (!fleet_->lock_step())
    self_->send(environment_, Credits{groups.size() * static_cast<uint64_t>(fleet_->experiment.algo.group_size)});
}

void LearnerActor::train(const std::vector<TrajectoryGroup>& groups) {
  report_->enter(RunReport::Phase::train);
  if (peers_.autoscaler) self_->send(peers_.autoscaler, LearnerTakes{});
  const uint64_t update = version_ + 1;
  std::vector<algos::Trajectory> batch;
  for (const TrajectoryGroup& group : groups)
    for (const TrajectoryPtr& sample : group.samples) {
      sample->batch_version = version_;
      batch.push_back(std::move(*sample));
    }
  if (std::all_of(batch.begin(), batch.end(), [](const algos::Trajectory& t) { return !t.failure.empty(); }))
    throw std::runtime_error("every episode of update " + std::to_string(update) +
                             " failed; the first: " + batch.front().failure);
  record(batch, static_cast<int64_t>(update));
  Trainer::Trained trained;
  try {
    trained = trainer_->step(batch);
  } catch (const TrainerGone& gone) {
    gone_ = gone.what();
    return finish();
  }
  algos::Metrics& metrics = trained.metrics;
  version_ = update;
  if (fleet_->experiment.algo.drop_equal_groups) add_drawn(metrics, batch);
  equal_.clear();
  removed_ = 0;
  metrics["staleness/dropped"] = static_cast<double>(std::exchange(dropped_, 0));

  snapshot_ = std::move(trained.weights);
  publish(version_, snapshot_, true);
  if (evaluation_due(version_) && !fleet_->stopping) evaluate();
  open_row(std::move(metrics));
}

void LearnerActor::add_drawn(algos::Metrics& metrics, const std::vector<algos::Trajectory>& batch) {
  double reward = 0.0, count = 0.0;
  const auto add = [&](const algos::Trajectory& sample) {
    if (!sample.failure.empty()) return;
    reward += sample.reward;
    count += 1.0;
  };
  for (const algos::Trajectory& sample : batch) add(sample);
  for (const TrajectoryGroup& group : equal_)
    for (const TrajectoryPtr& sample : group.samples) add(*sample);
  const auto group_size = static_cast<size_t>(fleet_->experiment.algo.group_size);
  const size_t kept = batch.size() / group_size;
  metrics["groups/drawn"] = static_cast<double>(equal_.size() + kept);
  metrics["groups/dropped_equal"] = static_cast<double>(equal_.size());
  if (count > 0.0) metrics["reward/drawn"] = reward / count;
}

void LearnerActor::record(const std::vector<algos::Trajectory>& batch, int64_t update) const {
  const int64_t keep = kept_updates(fleet_->experiment.run.keep_trajectories).value_or(0);
  if (keep == 0) return;
  write_trajectories(trajectory_path(fleet_->folder, update), update, batch);
  if (update > keep) prune_trajectories(fleet_->folder, update, keep);
}

bool LearnerActor::evaluation_due(uint64_t update) const {
  const auto every = static_cast<uint64_t>(fleet_->experiment.eval.every);
  return update == static_cast<uint64_t>(fleet_->experiment.run.updates) || (every > 0 && update % every == 0);
}

void LearnerActor::evaluate() {
  evaluating_ = true;
  self_->send(peers_.evaluator, Evaluate{version_, version_}, snapshot_);
}

void LearnerActor::open_row(algos::Metrics metrics) {
  phase_ = Phase::closing;
  row_ = std::move(metrics);
  row_["version"] = static_cast<double>(version_);
  // Every evaluation gets a row of its own: the one before the next evaluation waits for it.
  row_waits_for_evaluation_ = fleet_->lock_step() || version_ == 0 || last_update() || evaluation_due(version_ + 1);
  report_->enter(row_waits_for_evaluation_ && evaluating_ ? RunReport::Phase::eval : RunReport::Phase::other);
  counters_.reset();
  self_->request(peers_.router, kRequestLimit, RateQuery{}).then([this](const GroupRates& rates) {
    counters_ = GroupCounters{rates.tokens,      rates.busy_ns,   rates.steps,    rates.rows,       rates.prefill_rows,
                              rates.shared_rows, rates.kept_rows, rates.replicas, rates.replica_ns, rates.at_ns};
    try_close_row();
  });
}

void LearnerActor::try_close_row() {
  if (!counters_ || (row_waits_for_evaluation_ && evaluating_)) return;
  if (const MetricsPtr evaluation = std::exchange(evaluation_, nullptr))
    for (const auto& [name, value] : *evaluation) row_[name] = value;
  if (const auto seconds = std::exchange(roll_out_seconds_, std::nullopt)) row_["time/roll_out"] = *seconds;
  report_->close_update(row_, *counters_);
  report_->enter(RunReport::Phase::other);
  const std::vector<Alarm> alarms = watch_->observe(row_);
  self_->send(peers_.observer, UpdateRow{version_}, MetricsPtr(std::make_shared<algos::Metrics>(std::move(row_))));
  const auto every = static_cast<uint64_t>(fleet_->experiment.run.checkpoint_every);
  if (version_ > 0 && every > 0 && version_ % every == 0) save();
  heed(alarms);
  if (trainer_->wants_saving()) keep();
  let_go();
  if (last_update() || stopping_ || !gone_.empty() || !stopping_alarm_.empty() ||
      (fleet_->stop_after && version_ >= static_cast<uint64_t>(*fleet_->stop_after))) {
    finish();
    return;
  }
  phase_ = Phase::waiting_for_weights;
  proceed();
}

void LearnerActor::heed(const std::vector<Alarm>& alarms) {
  for (const Alarm& alarm : alarms) {
    const std::string text = "alarm " + alarm.name + " after update " + std::to_string(version_) + ": " + alarm.cause;
    self_->send(peers_.observer, Note{text});
    if (alarm.action == "checkpoint") save();
    if (alarm.action == "stop" && stopping_alarm_.empty()) stopping_alarm_ = text;
  }
}

bool LearnerActor::keep() {
  if (!gone_.empty()) return false;
  RunState books;
  books.version = version_;
  books.next_prompt = ledger_.next();
  // In lock-step a resumed run draws what the undisturbed one would have drawn.
  books.attempt = fleet_->attempt + (fleet_->lock_step() ? 0 : 1);
  books.extra[kWatched] = watch_->state();
  books.extra[kUnfinished] = numbers_to_text(ledger_.unfinished());
  try {
    kept_ = Kept{std::move(books), trainer_->state()};
  } catch (const TrainerGone& gone) {
    gone_ = gone.what();
    return false;
  }
  add_learner_state(kept_->books, kept_->trainer.learner);
  return true;
}

void LearnerActor::write_kept() {
  const auto& [books, trainer] = *kept_;
  if (saved_version_ == books.version) return;
  checkpoint_ = save_checkpoint(fleet_->folder, fleet_->model, *trainer.weights, fleet_->tokenizer, &trainer.optimizer,
                                &books, books.version);
  saved_version_ = books.version;
}

void LearnerActor::save() {
  if (saved_version_ == version_ || !keep()) return;
  write_kept();
  if (!fleet_->seat) kept_.reset();  // the trainer here has it all
}

void LearnerActor::let_go() {
  if (!leaving_ || !trainer_ || !keep()) return;
  leaving_ = false;
  trainer_->release();
}

void LearnerActor::finish() {
  phase_ = Phase::ended;
  save();
  if (!gone_.empty()) {
    write_kept();
    if (!fleet_->stopping)
      throw std::runtime_error(gone_ + "; the checkpoint of update " + std::to_string(kept_->books.version) +
                               " is kept, to go on: motley run --resume " + fleet_->folder.string() + " --listen ...");
  }
  auto summary = std::make_shared<RunSummary>(report_->summary());
  summary->updates = static_cast<int64_t>(*saved_version_);
  summary->interrupted = summary->updates < fleet_->experiment.run.updates;
  if (summary->interrupted) summary->alarm = stopping_alarm_;
  summary->checkpoint = checkpoint_;
  const RunFinished message{summary->interrupted};
  self_->send(peers_.supervisor, message, SummaryPtr(std::move(summary)));
}

caf::behavior learner(caf::stateful_actor<LearnerActor>* self, FleetPtr fleet, StartingPointPtr start,
                      LearnerActor::Peers peers) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(start), std::move(peers));
}

}  // namespace motley::actors
