#include "actors/run.h"

#include <cstdio>
#include <cstdlib>

#include "actors/fleet.h"
#include "actors/messages.h"
#include "actors/policy/keep.h"
#include "actors/supervisor.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kStopPoll{20};

void check(const Experiment& experiment) {
  const RunOptions& run = experiment.run;
  if (experiment.samplers.empty()) throw RunError("the experiment has no sampler group");
  if (!kept_updates(run.keep_trajectories))
    throw RunError("run.keep_trajectories is \"" + run.keep_trajectories + "\": allowed are all, none and last N");
  if (run.async && run.concurrency < experiment.algo.prompts * experiment.algo.group_size)
    throw RunError("run.concurrency is " + std::to_string(run.concurrency) + ": less than one batch of " +
                   std::to_string(experiment.algo.prompts * experiment.algo.group_size) + " episodes, which would never fill");
}

/// The conversation with a living fleet.
class Conversation {
 public:
  Conversation(caf::actor_system& system, FleetPtr fleet, RunObserver& observer, StopRequest& stop)
      : self_(system), fleet_(std::move(fleet)), observer_(observer), stop_(stop) {}

  RunSummary run(StartingPointPtr start) {
    supervisor_ = self_->system().spawn(supervisor, fleet_, std::move(start), caf::actor_cast<caf::actor>(self_));
    self_->monitor(supervisor_);
    std::exception_ptr failure;
    try {
      while (!summary_ && !failed_) {
        pass_stop_on();
        receive();
      }
    } catch (...) {  // of the observer: the fleet ends before the exception goes on
      failure = std::current_exception();
    }
    shut_down();
    if (failure) std::rethrow_exception(failure);
    if (failed_) throw RunError(failed_->actor + ": " + failed_->cause);
    return *summary_;
  }

 private:
  void pass_stop_on() {
    if (stop_.load() == 0 || fleet_->stopping.exchange(true)) return;
    caf::anon_send<caf::message_priority::high>(supervisor_, StopRun{});
  }
  void receive() {
    self_->receive(
        [&](const UpdateRow& row, const MetricsPtr& metrics) {
          observer_.update(static_cast<int64_t>(row.update), *metrics);
        },
        [&](const Note& note) { observer_.message(note.text); },
        [&](const RunFinished&, const SummaryPtr& summary) { summary_ = *summary; },
        [&](const RunFailed& failed) { failed_ = failed; },
        [&](const caf::down_msg& message) {
          supervisor_ended_ = true;
          failed_ = RunFailed{"supervisor", cause_text(self_->system(), message.reason)};
        },
        caf::after(kStopPoll) >> [] {});
  }
  /// Waits until every actor has ended; the supervisor is the last.
  void shut_down() {
    fleet_->stopping = true;
    caf::anon_send<caf::message_priority::high>(supervisor_, ShutDown{});
    supervisor_ = nullptr;
    const auto deadline = std::chrono::steady_clock::now() + kShutdownLimit;
    while (!supervisor_ended_) {
      if (std::chrono::steady_clock::now() > deadline) {
        // An actor hangs in user code; CAF would wait for its thread for ever. All files are complete by now.
        std::fputs("motley: an actor does not end; giving up on it\n", stderr);
        std::_Exit(1);
      }
      self_->receive([&](const UpdateRow&, const MetricsPtr&) {}, [&](const Note&) {},
                     [&](const RunFinished&, const SummaryPtr&) {}, [&](const RunFailed&) {},
                     [&](const caf::down_msg&) { supervisor_ended_ = true; }, caf::after(kStopPoll) >> [] {});
    }
  }

  caf::scoped_actor self_;
  FleetPtr fleet_;
  RunObserver& observer_;
  StopRequest& stop_;
  caf::actor supervisor_;
  std::optional<RunSummary> summary_;
  std::optional<RunFailed> failed_;
  bool supervisor_ended_ = false;
};

}  // namespace

RunSummary run_fleet(const RunRequest& request, RunObserver& observer, StopRequest& stop, const SamplerHook& hook) {
  check(request.experiment);
  auto [fleet, start] = prepare(request, observer, stop);
  if (stop.load() != 0 && !request.resume) {
    // Nothing has been trained, and a warm start cut short is no state to go on from.
    RunSummary summary;
    summary.interrupted = true;
    return summary;
  }
  fleet->before_step = hook;
  SystemConfig config;
  caf::actor_system system(config);
  Conversation conversation(system, fleet, observer, stop);
  return conversation.run(std::move(start));
}

RunSummary run_experiment(const RunRequest& request, RunObserver& observer, StopRequest& stop) {
  return run_fleet(request, observer, stop, {});
}

}  // namespace motley::actors
