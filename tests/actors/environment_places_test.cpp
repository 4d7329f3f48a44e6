// The environment and the places where calls into tasks are made: workers that join, leave, hang and are lost, played
// by the test, as are router and learner.
#include "actors/environment.h"
#include "tests/actors/actor_stage.h"
#include "tests/actors/interacting_task.h"

namespace motley::actors {
namespace {

/// A worker that joined: what it is asked for goes to the test, which answers through it.
caf::behavior fake_worker(caf::event_based_actor* self, const caf::actor& environment, const caf::actor& test) {
  install_handlers(self);
  using Promise = caf::typed_response_promise<Worked, EpisodeStepPtr>;
  auto open = std::make_shared<std::map<uint64_t, Promise>>();
  return {
      [=](AddWorker message) {
        self->send(environment, message);
        self->send(test, message);
      },
      [=](WorkerCloses message) { self->send(environment, message); },
      [=](const Work& message, const EpisodeJobPtr& job) -> caf::result<Worked, EpisodeStepPtr> {
        auto promise = self->make_response_promise<Worked, EpisodeStepPtr>();
        (*open)[message.number] = promise;
        self->send(test, message, job);
        return promise;
      },
      [=](const Worked& answer, const EpisodeStepPtr& step) {
        open->at(answer.session).deliver(answer, step);
        open->erase(answer.session);
      },
      [=](Probe probe) { return probe; },
      [=](const PeerLost& gone) { self->quit(caf::make_error(caf::sec::runtime_error, gone.cause)); },
      [=](ShutDown) { self->quit(); },
  };
}

struct AskedCall {
  caf::actor from;
  Work work;
  EpisodeJobPtr job;
};

/// One group of two samples at a time.
struct Table {
  explicit Table(const std::string& task, bool interacts = true) : stage(wanted(task, interacts)) {
    environment = stage.self->spawn(motley::actors::environment, stage.fleet, stage.me(), stage.me(),
                                    std::vector<caf::actor>{local});
  }
  ~Table() {
    for (const caf::actor& each : {environment, local, first, second})
      if (each) stage.end(each);
  }
  static Experiment wanted(const std::string& task, bool interacts) {
    Experiment experiment = tiny_experiment(true);
    experiment.run.concurrency = 2;
    experiment.algo.group_size = 2;
    experiment.algo.prompts = 1;
    if (interacts) use_interacting_task(experiment, task);
    return experiment;
  }
  caf::actor join(uint64_t slots) {
    const caf::actor worker = stage.self->spawn(fake_worker, environment, stage.me());
    stage.self->send(worker, AddWorker{slots});
    stage.expect<AddWorker>();
    return worker;
  }
  void start() { stage.self->send(environment, StartIssuing{0, {}}); }
  AskedCall asked() {
    std::optional<AskedCall> result;
    stage.self->receive(
        [&](const Work& work, const EpisodeJobPtr& job) {
          result = AskedCall{caf::actor_cast<caf::actor>(stage.self->current_sender()), work, job};
        },
        caf::after(kLimit) >> [] { FAIL("no call came"); });
    return *result;
  }
  void answer(const AskedCall& call, EpisodeStep step) {
    stage.self->send(call.from, Worked{call.work.number},
                     EpisodeStepPtr(std::make_shared<EpisodeStep>(std::move(step))));
  }
  void ask_for_reply(const AskedCall& call) {
    EpisodeStep step;
    step.reply_tokens = 2;
    step.read = {0, 1};
    answer(call, step);
  }
  void end_episode(const AskedCall& call, double reward) {
    EpisodeStep step;
    step.outcome.reward.value = reward;
    step.outcome.end = "submitted";
    answer(call, step);
  }
  SessionRequest session() {
    const auto [open, requests] = stage.expect<OpenSessions, SessionRequestsPtr>();
    REQUIRE(open.count == 1);
    return requests->front();
  }
  void draw(const SessionRequest& request, int32_t token) {
    FinishedSession finished{.session = request.session, .prompt = request.tokens, .finish = FinishReason::stop};
    finished.records.tokens = {token};
    finished.records.log_q = {-1.0f};
    finished.records.versions = {0};
    stage.self->send(environment, SessionsFinished{1},
                     std::make_shared<std::vector<FinishedSession>>(std::vector<FinishedSession>{finished}));
  }
  algos::Trajectory episode() {
    const auto [done, trajectory] = stage.expect<EpisodeDone, TrajectoryPtr>();
    return *trajectory;
  }
  bool quiet() {
    bool nothing = true;
    stage.self->receive([&](const Work&, const EpisodeJobPtr&) { nothing = false; },
                        [&](const OpenSessions&, const SessionRequestsPtr&) { nothing = false; },
                        [&](const EpisodeDone&, const TrajectoryPtr&) { nothing = false; },
                        caf::after(std::chrono::milliseconds(20)) >> [] {});
    return nothing;
  }

  Stage stage;
  caf::actor local = stage.self->spawn(fake_worker, caf::actor(), stage.me());
  caf::actor environment, first, second;
};

}  // namespace

TEST_CASE("an interaction is begun by a worker that joined, and lives there") {
  Table table("places_live");
  table.first = table.join(4);
  table.start();
  const AskedCall one = table.asked(), other = table.asked();
  CHECK(one.from == table.first);
  CHECK(other.from == table.first);
  CHECK(one.job->call == EpisodeJob::Call::begin);
  CHECK(one.job->interaction != other.job->interaction);
  CHECK_FALSE(one.job->driver);
  table.second = table.join(4);
  table.ask_for_reply(one);
  const SessionRequest request = table.session();
  CHECK(request.tokens == std::vector<int32_t>{0, 1});
  table.draw(request, 2);
  const AskedCall reply = table.asked();
  CHECK(reply.from == table.first);
  CHECK(reply.job->call == EpisodeJob::Call::reply);
  CHECK(reply.job->interaction == one.job->interaction);
  CHECK(reply.job->turns == 1);
  CHECK(reply.job->prompt == request.tokens);
  CHECK(reply.job->drawn == std::vector<int32_t>{2});
  table.end_episode(reply, 0.5);
  CHECK(table.episode().reward == 0.5);
}

TEST_CASE("interactions of a worker that is lost begin anew elsewhere; what was drawn for them is thrown away") {
  Table table("places_lost");
  caf::actor dies = table.join(4);
  table.start();
  const AskedCall draws = table.asked(), calls = table.asked();
  table.ask_for_reply(draws);
  const SessionRequest out = table.session();
  table.stage.self->send(dies, PeerLost{"out of power"});
  dies = nullptr;
  const AskedCall again = table.asked();  // the one in a call, at once
  CHECK(again.from == table.local);
  CHECK(again.job->driver);
  CHECK(again.work.session == calls.work.session);
  CHECK(again.job->interaction != calls.job->interaction);
  table.end_episode(again, 0.25);
  CHECK(table.episode().reward == 0.25);
  CHECK(table.quiet());
  table.draw(out, 2);  // the one that drew, when that is over
  const AskedCall anew = table.asked();
  CHECK(anew.job->call == EpisodeJob::Call::begin);
  CHECK(anew.work.session == draws.work.session);
  table.ask_for_reply(anew);
  const SessionRequest fresh = table.session();
  CHECK(fresh.tokens == std::vector<int32_t>{0, 1});
  table.draw(fresh, 1);
  table.end_episode(table.asked(), 1.0);
  const algos::Trajectory episode = table.episode();
  CHECK(episode.tokens == std::vector<int32_t>{0, 1, 1});  // of the second life alone
  CHECK(episode.turns.size() == 1);
  CHECK(episode.failure.empty());
  CHECK(table.quiet());
}

TEST_CASE("an episode that loses its fourth worker fails, with the cause") {
  Table table("places_lose_four");
  caf::actor worker = table.join(4);
  table.start();
  for (int i = 0; i < 4; ++i) {
    table.asked();
    table.asked();
    const caf::actor dies = worker;
    worker = table.join(4);
    table.stage.self->send(dies, PeerLost{"out of power"});
  }
  for (int i = 0; i < 2; ++i) {
    const algos::Trajectory episode = table.episode();
    CHECK(episode.failure == "it lost 4 workers, the last because out of power");
    CHECK(episode.ending == "failed");
  }
  table.first = worker;
}

TEST_CASE("a worker that closes finishes its calls; its interactions begin anew elsewhere, and it may leave") {
  Table table("places_close");
  caf::actor leaves = table.join(4);
  table.start();
  const AskedCall draws = table.asked(), calls = table.asked();
  table.ask_for_reply(draws);
  const SessionRequest out = table.session();
  table.stage.self->send(leaves, WorkerCloses{});
  CHECK(table.quiet());
  table.ask_for_reply(calls);  // goes on nowhere
  const AskedCall again = table.asked();
  CHECK(again.from == table.local);
  CHECK(again.work.session == calls.work.session);
  table.end_episode(again, 0.25);
  CHECK(table.episode().reward == 0.25);
  table.stage.self->send(leaves, ShutDown{});
  leaves = nullptr;
  table.draw(out, 2);
  const AskedCall anew = table.asked();
  CHECK(anew.work.session == draws.work.session);
  table.end_episode(anew, 1.0);
  CHECK(table.episode().reward == 1.0);
}

TEST_CASE("scores are made by any worker, and elsewhere when it is lost") {
  Table table("", false);
  caf::actor dies = table.join(1);
  table.start();
  const auto [open, requests] = table.stage.expect<OpenSessions, SessionRequestsPtr>();
  REQUIRE(open.count == 2);
  for (const SessionRequest& request : *requests) table.draw(request, 2);
  const AskedCall there = table.asked(), here = table.asked();
  CHECK(there.from == dies);
  CHECK(here.from == table.local);
  CHECK(there.job->replies.size() == 1);
  table.end_episode(here, 0.5);
  CHECK(table.episode().reward == 0.5);
  table.stage.self->send(dies, PeerLost{"out of power"});
  dies = nullptr;
  const AskedCall again = table.asked();
  CHECK(again.from == table.local);
  CHECK(again.work.session == there.work.session);
  CHECK(again.job->replies[0].text == there.job->replies[0].text);
  table.end_episode(again, 1.0);
  CHECK(table.episode().reward == 1.0);
  CHECK(table.quiet());
}

TEST_CASE("a call that hangs at a worker fails its episode; a late answer ends the interaction there") {
  Table table("places_hang");
  table.stage.fleet->hooks.call_limit = std::chrono::milliseconds(50);
  table.first = table.join(4);
  table.start();
  const AskedCall one = table.asked();
  table.asked();
  for (int i = 0; i < 2; ++i) CHECK(table.episode().failure.find("its task did not answer") != std::string::npos);
  const AskedCall drop = table.asked();  // the fake worker says at once that the call is over
  CHECK(drop.from == table.first);
  CHECK(drop.job->call == EpisodeJob::Call::drop);
  CHECK(drop.job->interaction == one.job->interaction);
}

}  // namespace motley::actors
