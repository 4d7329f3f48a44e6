#include "actors/run.h"

#include <unistd.h>

#include <array>

#include "actors/fleet.h"
#include "actors/messages.h"
#include "actors/policy/keep.h"
#include "actors/remote/evaluator_seats.h"
#include "actors/remote/gate.h"
#include "actors/remote/hub.h"
#include "actors/remote/learner_seat.h"
#include "actors/supervisor.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kStopPoll{20};

void check(const Experiment& experiment, bool listens) {
  const RunOptions& run = experiment.run;
  if (experiment.samplers.empty()) throw RunError("the experiment has no sampler group");
  if (!kept_updates(run.keep_trajectories))
    throw RunError("run.keep_trajectories is \"" + run.keep_trajectories + "\": allowed are all, none and last N");
  for (const SamplerGroupOptions& group : experiment.samplers)
    if (group.replicas == 0 && !listens && !experiment.grows_here(group))
      throw RunError("sampler group " + group.name +
                     " has no replicas, and nobody can join: give --listen, or samplers.replicas of at least 1");
  if (run.learner == "joins" && !listens)
    throw RunError("run.learner is \"joins\", and nobody can join: give --listen, or run.learner = \"here\"");
  if (listens && !run.async)
    throw RunError("samplers join asynchronous runs only: leave --listen away, or set run.async = true");
  if (run.async && run.concurrency < experiment.algo.prompts * experiment.algo.group_size)
    throw RunError("run.concurrency is " + std::to_string(run.concurrency) + ": less than one batch of " +
                   std::to_string(experiment.algo.prompts * experiment.algo.group_size) +
                   " episodes, which would never fill");
}

/// The conversation with a living fleet.
class Conversation {
 public:
  Conversation(caf::actor_system& system, FleetPtr fleet, RunObserver& observer, StopRequest& stop)
      : self_(system), fleet_(std::move(fleet)), observer_(observer), stop_(stop) {}

  /// False if an actor did not end in time.
  bool ended() const { return ended_; }
  RunSummary run(StartingPointPtr start, caf::actor gate) {
    supervisor_ = self_->system().spawn(supervisor, fleet_, std::move(start), caf::actor_cast<caf::actor>(self_),
                                        std::move(gate));
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
    shut_down(!failure);
    if (failure) std::rethrow_exception(failure);
    if (failed_) throw RunError(failed_->actor + ": " + failed_->cause);
    return *summary_;
  }

 private:
  void pass_stop_on() {
    if (stop_.load() == 0 || fleet_->stopping.exchange(true)) return;
    let_evaluators_go();
    caf::anon_send<caf::message_priority::high>(supervisor_, StopRun{});
  }
  /// Nobody waits any more for what they have under way.
  void let_evaluators_go() {
    if (fleet_->evaluators) fleet_->evaluators->close("the run stops");
  }
  void receive() {
    self_->receive([&](const UpdateRow& row,
                       const MetricsPtr& metrics) { observer_.update(static_cast<int64_t>(row.update), *metrics); },
                   [&](const Note& note) { observer_.message(note.text); },
                   [&](const RunFinished&, const SummaryPtr& summary) { summary_ = *summary; },
                   [&](const RunFailed& failed) { failed_ = failed; },
                   [&](const caf::down_msg& message) {
                     ended_ = true;
                     failed_ = RunFailed{"supervisor", cause_text(self_->system(), message.reason)};
                   },
                   caf::after(kStopPoll) >> [] {});
  }
  /// Waits until every actor has ended; the supervisor is the last.
  void shut_down(bool tell) {
    fleet_->stopping = true;
    let_evaluators_go();
    caf::anon_send<caf::message_priority::high>(supervisor_, ShutDown{});
    supervisor_ = nullptr;
    const auto deadline = std::chrono::steady_clock::now() + kShutdownLimit;
    while (!ended_ && std::chrono::steady_clock::now() < deadline)
      self_->receive([&](const UpdateRow&, const MetricsPtr&) {},
                     [&](const Note& note) {
                       if (tell) observer_.message(note.text);
                     },
                     [&](const RunFinished&, const SummaryPtr&) {}, [&](const RunFailed&) {},
                     [&](const caf::down_msg&) { ended_ = true; }, caf::after(kStopPoll) >> [] {});
    if (fleet_->hub) fleet_->hub->sessions().stop();  // it holds handles of actors, which the system must outlive
  }

  caf::scoped_actor self_;
  FleetPtr fleet_;
  RunObserver& observer_;
  StopRequest& stop_;
  caf::actor supervisor_;
  std::optional<RunSummary> summary_;
  std::optional<RunFailed> failed_;
  bool ended_ = false;
};

SystemOptions system_options(const Fleet& fleet) {
  SystemOptions options;
  if (!fleet.hub) return options;
  options.network = true;
  options.keys = fleet.hub->listen().keys;
  options.lost_after = std::chrono::seconds(fleet.experiment.run.lost_after);
  return options;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "localhost";
}

/// Where one that listens everywhere can be reached.
Address reachable(Address address, const std::string& host) {
  if (address.host == "0.0.0.0" || address.host == "::" || address.host == "*") address.host = host;
  return address;
}

/// Opens the gate at the hub's address, and says where that is.
caf::actor open_gate(caf::actor_system& system, const FleetPtr& fleet, RunObserver& observer) {
  Address address = fleet->hub->listen().address;
  const caf::actor opened = system.spawn(gate, fleet);
  try {
    address.port = publish_actor(system, opened, address.port, address.host, fleet->hub->secured());
  } catch (...) {
    caf::anon_send_exit(opened, caf::exit_reason::user_shutdown);
    throw;
  }
  fleet->join_here = address_text(reachable(address, "127.0.0.1"));
  const std::string& host = fleet->experiment.autoscaler.host;
  fleet->join_elsewhere = address_text(host.empty() ? reachable(address, host_name()) : Address{host, address.port});
  observer.message("samplers join with: motley sampler --join " + address_text(address) +
                   (fleet->hub->secured() ? " --key FILE" : ""));
  if (fleet->seat)
    observer.message("a learner joins with: motley learner --join " + address_text(address) +
                     (fleet->hub->secured() ? " --key FILE" : ""));
  return opened;
}

/// An actor system and the conversation with its fleet, in the order in which they may end.
struct Stage {
  Stage(const FleetPtr& fleet, RunObserver& observer, StopRequest& stop)
      : config(system_options(*fleet)), system(config), conversation(system, fleet, observer, stop) {}
  SystemConfig config;
  caf::actor_system system;
  Conversation conversation;
};

}  // namespace

RunSummary run_fleet(const RunRequest& request, RunObserver& observer, StopRequest& stop, const FleetHooks& hooks) {
  check(request.experiment, request.listen.has_value());
  std::shared_ptr<RemoteHub> hub;
  if (request.listen)
    hub = std::make_shared<RemoteHub>(*request.listen, std::chrono::seconds(request.experiment.run.lost_after));
  auto [fleet, start] = prepare(request, observer, stop);
  if (stop.load() != 0 && !request.resume) {
    // Nothing has been trained, and a warm start cut short is no state to go on from.
    RunSummary summary;
    summary.interrupted = true;
    return summary;
  }
  fleet->hooks = hooks;
  fleet->hub = std::move(hub);
  if (fleet->hub) {
    fleet->task_digests = task_digests(*fleet->tasks, fleet->experiment.seed);
    fleet->evaluators = std::make_shared<EvaluatorSeats>();
  }
  if (fleet->experiment.run.learner == "joins") fleet->seat = std::make_shared<LearnerSeat>();
  // CAF waits without limit for an actor that hangs in user code (a reward): then the stage is left standing.
  const auto leave_standing = [](Stage* stage) {
    if (stage->conversation.ended()) delete stage;
  };
  const std::unique_ptr<Stage, decltype(leave_standing)> stage(new Stage(fleet, observer, stop), leave_standing);
  caf::actor gate;
  if (fleet->hub) gate = open_gate(stage->system, fleet, observer);
  return stage->conversation.run(std::move(start), std::move(gate));
}

RunSummary run_experiment(const RunRequest& request, RunObserver& observer, StopRequest& stop) {
  return run_fleet(request, observer, stop, {});
}

}  // namespace motley::actors
