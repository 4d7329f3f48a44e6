#include "actors/path_times.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "actors/messages.h"
#include "actors/remote/gate.h"
#include "actors/remote/join.h"
#include "actors/router.h"
#include "actors/sampler.h"
#include "actors/system.h"
#include "actors/weight_plane.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kWarmup = 50;  // requests that are not counted

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Experiment smallest_experiment() {
  Experiment experiment;
  experiment.name = "path";
  experiment.run.keep_trajectories = "none";
  experiment.run.checkpoint_every = 0;
  experiment.model.config.layers = 1;
  experiment.model.config.width = 16;
  experiment.model.config.heads = 1;
  experiment.model.config.kv_heads = 1;
  experiment.model.config.max_positions = 32;
  TaskOptions task{.env = "arithmetic", .options = {{"digits", "1"}}};
  for (const envs::Option& option : envs::find_task("arithmetic")->options)
    task.options.emplace(option.name, option.default_value);
  experiment.tasks = {task};
  experiment.sampling.max_tokens = 1;
  experiment.algo.correction = "mis";
  experiment.trainer.profile = "fp32";
  experiment.eval.every = 1000000;
  experiment.eval.prompts = 1;
  experiment.eval.samples = 1;
  experiment.eval.k = {1};
  experiment.eval.profiles = {"fp32"};
  SamplerGroupOptions group{.name = "one", .profile = "trainer"};
  group.capacity = 1.0;  // nothing is measured first
  group.max_sequences = 64;
  experiment.samplers = {group};
  return experiment;
}

class Silent : public RunObserver {
 public:
  void started(int64_t, int64_t, int64_t) override {}
  void warm_start(int64_t, int64_t, double, bool) override {}
  void update(int64_t, const algos::Metrics& metrics) override { rows.push_back(metrics); }
  void message(const std::string&) override {}
  std::vector<algos::Metrics> rows;
};

/// Router, weight plane and one sampler, in whose middle the caller stands.
class Path {
 public:
  Path(const FleetPtr& fleet, const StartingPoint& start)
      : fleet_(fleet),
        config_(SystemOptions{.threads = 2, .network = fleet->hub != nullptr}),
        system_(config_),
        self_(system_) {
    const auto me = caf::actor_cast<caf::actor>(self_);
    plane_ = self_->spawn<caf::detached>(weight_plane, fleet_);
    router_ = self_->spawn(router, fleet_, me);
    self_->send(plane_, Publish{0, true}, std::make_shared<const Parameters>(start.parameters.clone(Device{})));
    if (fleet_->hub) {
      gate_ = self_->spawn(gate, fleet_);
      self_->send(gate_, OpenGate{plane_, router_, me, {}});
      const Address at{"127.0.0.1", publish_actor(system_, gate_, 0, "127.0.0.1", false)};
      joined_ = std::thread([this, at] {
        run_sampler(
            {.address = at}, [](const std::string&) {}, stop_);
      });
    } else {
      sampler_ = self_->spawn<caf::detached>(sampler, fleet_, 0, 0, plane_, router_);
    }
    receive([](FleetReady) {});
  }
  ~Path() {
    stop_ = 1;
    if (joined_.joinable()) joined_.join();
    for (caf::actor* actor : {&sampler_, &gate_, &router_, &plane_}) {
      if (*actor) self_->send_exit(*actor, caf::exit_reason::user_shutdown);
      *actor = nullptr;
    }
    if (fleet_->hub) fleet_->hub->sessions().stop();
  }

  double request(uint64_t session, const std::vector<int32_t>& tokens) {
    const auto requests = std::make_shared<const std::vector<SessionRequest>>(std::vector<SessionRequest>{
        {.session = session, .tokens = tokens, .max_tokens = 1, .random_session = session}});
    const auto begin = Clock::now();
    self_->send(router_, OpenSessions{1}, requests);
    receive([](const SessionsFinished&, const FinishedSessionsPtr& finished) {
      if (!finished->front().failure.empty()) throw std::runtime_error(finished->front().failure);
    });
    return seconds_since(begin);
  }
  std::pair<uint64_t, uint64_t> busy_ns_and_tokens() {
    std::pair<uint64_t, uint64_t> result;
    self_->request(router_, kRequestLimit, RateQuery{})
        .receive(
            [&](const GroupRates& rates) {
              result = {rates.busy_ns.at(0), rates.tokens.at(0)};
            },
            [&](const caf::error& error) { throw std::runtime_error(system_.render(error)); });
    return result;
  }

 private:
  /// The next message of the kind that `handler` takes.
  template <class Handler>
  void receive(Handler handler) {
    self_->receive(
        handler, caf::after(kRequestLimit) >> [] { throw std::runtime_error("the actors did not answer"); });
  }

  FleetPtr fleet_;
  StopRequest stop_{0};
  SystemConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  caf::actor plane_, router_, sampler_, gate_;
  std::thread joined_;
};

}  // namespace

RequestTimes time_requests(int64_t requests, bool remote, const std::filesystem::path& scratch) {
  RunRequest request{.experiment = smallest_experiment(), .folder = scratch};
  if (remote) request.experiment.samplers[0].replicas = 0;
  Silent silent;
  const StopRequest stop{0};
  const auto [fleet, start] = prepare(request, silent, stop);
  if (remote)
    fleet->hub = std::make_shared<RemoteHub>(ListenOptions{.address = {"127.0.0.1", 0}}, std::chrono::seconds(10));
  Path path(fleet, *start);
  const std::vector<int32_t> tokens = fleet->tokenizer.encode("1+1=");
  for (int64_t i = 0; i < kWarmup; ++i) path.request(static_cast<uint64_t>(i), tokens);
  const auto before = path.busy_ns_and_tokens();
  RequestTimes times;
  for (int64_t i = 0; i < requests; ++i)
    times.seconds.push_back(path.request(static_cast<uint64_t>(kWarmup + i), tokens));
  const auto after = path.busy_ns_and_tokens();
  times.engine_seconds = static_cast<double>(after.first - before.first) * 1e-9 /
                         static_cast<double>(std::max<uint64_t>(1, after.second - before.second));
  return times;
}

EpisodeTimes time_episodes(int64_t updates, const std::filesystem::path& scratch) {
  constexpr int64_t kSkipped = 3;
  RunRequest request{.experiment = smallest_experiment(), .folder = scratch};
  Experiment& experiment = request.experiment;
  experiment.run.updates = updates + kSkipped + 1;  // the last one waits for an evaluation
  experiment.algo.prompts = 128;
  experiment.algo.group_size = 8;
  experiment.run.concurrency = 4 * experiment.algo.prompts * experiment.algo.group_size;
  experiment.samplers[0].max_sequences = 1024;
  Silent silent;
  StopRequest stop{0};
  run_experiment(request, silent, stop);
  EpisodeTimes times;
  for (size_t i = 1 + kSkipped; i + 1 < silent.rows.size(); ++i) {
    const algos::Metrics& row = silent.rows[i];
    times.episodes += experiment.algo.prompts * experiment.algo.group_size;
    times.seconds += row.at("time/update");
    times.train_seconds += row.at("time/train");
    times.without_compute += row.at("time/update") * (1.0 - row.at("time/compute_share"));
  }
  return times;
}

}  // namespace motley::actors
