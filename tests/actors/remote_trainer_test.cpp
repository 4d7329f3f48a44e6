// Optimizer steps that are computed over a socket: the same bits as here, also by a learner that takes over from one
// that was lost; and what either end does with bytes that are wrong.
#include "actors/remote/remote_trainer.h"

#include <algorithm>

#include "actors/local_trainer.h"
#include "actors/remote/learner_service.h"
#include "actors/remote/session_client.h"
#include "actors/remote/session_server.h"
#include "tests/actors/recorded_run.h"

namespace motley::actors {
namespace {

/// Batches of a recorded run, and the start that it had.
struct RecordedBatches {
  RecordedBatches() {
    experiment = tiny_experiment(false);
    experiment.run.updates = 3;
    experiment.run.keep_trajectories = "all";
    experiment.eval.every = 0;
    experiment.algo.correction = "sc+mis";
    experiment.algo.advantage = "reinforce";
    experiment.algo.group_size = 4;
    experiment.algo.kl = "k3";
    experiment.algo.kl_coefficient = 0.1;
    experiment.probe.staleness_every = 1;
    experiment.probe.versions = 2;
    TemporaryFolder folder;
    const Outcome outcome = run_tiny(experiment, folder.path());
    for (int64_t update = 1; update <= 3; ++update)
      batches.push_back(recorded(outcome, folder.path(), update).trajectories);
    model = load_checkpoint(outcome.summary.checkpoint).config.resolved();
  }
  StartingPointPtr start() const {
    auto point = std::make_shared<StartingPoint>();
    point->parameters = Parameters::initialize(model, 3);
    point->reference = std::make_shared<const Parameters>(Parameters::initialize(model, 4));
    return point;
  }
  Experiment experiment;
  TransformerConfig model;
  std::vector<std::vector<algos::Trajectory>> batches;
};
const RecordedBatches& recorded_batches() {
  static const RecordedBatches once;
  return once;
}

std::string clockless_metrics(const algos::Metrics& metrics) { return clockless({{1, metrics}}); }

std::map<std::string, uint64_t> state_fingerprints(const Trainer::State& state) {
  std::map<std::string, uint64_t> prints = state.weights->fingerprints();
  for (const auto& [name, tensor] : state.optimizer.tensors) prints[name] = fingerprint(tensor);
  return prints;
}

/// What the run's end and learners' ends have in common.
struct LearnerWire {
  /// A learner of another process, but for the process.
  struct Learner {
    explicit Learner(LearnerWire& owner) : wire(owner) {
      run_end = std::make_shared<PeerLine>(
          [this](FrameKind kind, std::string body) { wire.server.send(token, kind, std::move(body)); },
          [](const std::string&) {});
      token = wire.server.admit(
          {.frame = [line = run_end](FrameKind kind, std::string body) { line->frame(kind, std::move(body)); },
           .closed = [line = run_end](const std::string& cause) { line->closed(cause); }});
      line = std::make_unique<PeerLine>(
          [this](FrameKind kind, std::string body) { client->send(kind, std::move(body)); }, [](const std::string&) {});
      client = std::make_unique<SessionClient>(
          wire.context,
          SessionClientOptions{.endpoint = "tcp://127.0.0.1:" + std::to_string(wire.server.port()), .token = token},
          SessionClient::Events{.frame =
                                    [this](FrameKind kind, std::string body) {
                                      if (kind != FrameKind::attached) line->frame(kind, std::move(body));
                                    },
                                .closed = [this](const std::string& cause) { line->closed(cause); }});
      wire.seat->take(run_end);
    }
    ~Learner() {
      run_end->closed("lost");
      wire.seat->leave(run_end.get());
      line->closed("the test ends");
      if (thread.joinable()) thread.join();
    }
    /// Does what learners do, until the run has had so many updates of it.
    void serve(int updates) {
      thread = std::thread([this, updates] {
        try {
          serve_run(*line, recorded_batches().experiment, recorded_batches().model, [&, done = 0]() mutable {
            if (++done != updates) return;
            // What has been sent goes out; nothing is heard any more.
            while (!heard) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            throw LineClosed("killed");
          });
        } catch (const std::exception& error) {
          ended = error.what();
        }
      });
    }
    LearnerWire& wire;
    std::shared_ptr<PeerLine> run_end;
    std::unique_ptr<PeerLine> line;
    std::string token, ended;
    std::atomic<bool> heard{false};
    std::unique_ptr<SessionClient> client;
    std::thread thread;
  };

  std::unique_ptr<RemoteTrainer> trainer(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    const StartingPointPtr start = recorded_batches().start();
    auto weights = std::make_shared<const Parameters>(start->parameters.clone());
    return std::make_unique<RemoteTrainer>(
        recorded_batches().experiment, recorded_batches().model, *start, weights, seat,
        RemoteTrainerOptions{.say = [this](const std::string& text) { said.push_back(text); },
                             .stopping = [this] { return stopping.load(); },
                             .patience = patience});
  }

  zmq::context_t context;
  SessionServer server{context, {.endpoint = "tcp://127.0.0.1:*"}};
  std::shared_ptr<LearnerSeat> seat = std::make_shared<LearnerSeat>();
  std::vector<std::string> said;
  std::atomic<bool> stopping{false};
};

}  // namespace

TEST_CASE("a learner elsewhere gives the bits of one here, and so does the next after it is lost") {
  const StartingPointPtr start = recorded_batches().start();
  LocalTrainer here(recorded_batches().experiment, recorded_batches().model, start,
                    std::make_shared<const Parameters>(start->parameters.clone()));
  LearnerWire wire;
  const auto there = wire.trainer();
  const auto check_step = [&](size_t i) {
    const Trainer::Trained a = here.step(recorded_batches().batches[i]), b = there->step(recorded_batches().batches[i]);
    CHECK(a.weights->fingerprints() == b.weights->fingerprints());
    CHECK(clockless_metrics(a.metrics) == clockless_metrics(b.metrics));
    CHECK(b.metrics.contains("probe/tokens"));
  };
  {
    LearnerWire::Learner first(wire);
    first.serve(2);
    check_step(0);
    there->state();  // from which the next one goes on
    check_step(1);
    first.heard = true;
  }
  LearnerWire::Learner second(wire);
  second.serve(-1);
  check_step(2);
  const Trainer::State state = there->state();
  CHECK(state_fingerprints(state) == state_fingerprints(here.state()));
  CHECK(state.learner == here.state().learner);
  CHECK(state.optimizer.numbers == here.state().optimizer.numbers);
  CHECK(wire.said == std::vector<std::string>{});
}

TEST_CASE("a learner that computes something else than the one before it is told of once") {
  LearnerWire wire;
  const auto trainer = wire.trainer();
  {
    LearnerWire::Learner first(wire);
    first.serve(2);
    trainer->step(recorded_batches().batches[0]);
    trainer->step(recorded_batches().batches[1]);
    first.heard = true;
  }
  LearnerWire::Learner second(wire);
  second.thread = std::thread([&] {
    Experiment other = recorded_batches().experiment;
    other.trainer.lr *= 2;
    try {
      serve_run(*second.line, other, recorded_batches().model, [] {});
    } catch (const LineClosed&) {
    }
  });
  trainer->step(recorded_batches().batches[2]);
  REQUIRE(wire.said.size() == 1);
  CHECK(wire.said[0].find("the weights of update 1 differ from those published") != std::string::npos);
}

TEST_CASE("nobody is waited for beyond the patience, or when the run stops; the state held is there at once") {
  LearnerWire wire;
  const auto trainer = wire.trainer(std::chrono::milliseconds(1));
  CHECK(trainer->state().optimizer.numbers.at("adam.steps") == 0.0);
  CHECK_THROWS_AS(trainer->step(recorded_batches().batches[0]), TrainerGone);
  LearnerWire other;
  other.stopping = true;
  CHECK_THROWS_WITH(other.trainer()->step(recorded_batches().batches[0]), "the run stops while no learner is there");
}

TEST_CASE("learners that fail again and again end the run with their reason") {
  LearnerWire wire;
  const auto trainer = wire.trainer();
  std::vector<std::unique_ptr<LearnerWire::Learner>> learners;
  std::thread sends_them([&] {
    for (int i = 0; i < 3; ++i) {
      while (wire.seat->taken()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      learners.push_back(std::make_unique<LearnerWire::Learner>(wire));
      learners.back()->line->send(FrameKind::failed, text_body("no memory"));
    }
  });
  CHECK_THROWS_WITH(trainer->step(recorded_batches().batches[0]),
                    "learners have failed 3 times in a row at update 1, last: no memory");
  sends_them.join();
}

TEST_CASE("what a learner sends is checked against the run's model and what was asked for") {
  const auto model = recorded_batches().model;
  StateHead head;
  for (const std::string prefix : {"weights/", "adam.first/", "adam.second/", "history.1/", "reference/"})
    for (const auto& [name, shape] : Parameters::layout(model)) head.tensors.push_back({prefix + name, shape});
  CHECK_NOTHROW(check_tensors(head, model, 1));
  CHECK_THROWS_AS(check_tensors(head, model, 0), WireError);  // more past weights than the run keeps
  const auto refused = [&](const auto& change) {
    StateHead wrong = head;
    change(wrong.tensors);
    CHECK_THROWS_AS(check_tensors(wrong, model, 1), WireError);
  };
  refused([](auto& tensors) { tensors.pop_back(); });
  refused([](auto& tensors) { tensors.clear(); });
  refused([](auto& tensors) { tensors[1] = tensors[0]; });
  refused([](auto& tensors) { tensors[0].shape.push_back(1); });
  refused([](auto& tensors) { tensors[0].shape[0] = -1; });
  refused([](auto& tensors) { tensors[0].name = "weights/x"; });
  refused([](auto& tensors) { tensors[0].name = "x"; });
  refused([](auto& tensors) { tensors[0].name = ""; });

  head.version = 7;
  head.numbers = {{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", -0.0}};
  head.learner = {{"baseline", "0x1p+0"}};
  const TrainedHead trained{9, {{"loss", std::numeric_limits<double>::infinity()}, {"grad_norm", 0.5}}};
  for (const std::string& body : {state_body(head), trained_body(trained), batch_body({1, 2})})
    for (size_t length = 0; length < body.size(); length += 1 + body.size() / 50) {
      const std::string_view cut = std::string_view(body).substr(0, length);
      CHECK_THROWS_AS(parse_state(cut), WireError);
      CHECK_THROWS_AS(parse_trained(cut), WireError);
      CHECK_THROWS_AS(parse_batch(cut), WireError);
    }
  CHECK(state_body(parse_state(state_body(head))) == state_body(head));
  CHECK(trained_body(parse_trained(trained_body(trained))) == trained_body(trained));
  TrainedHead many{1, {}};
  for (int i = 0; i < 20000; ++i) many.metrics["m" + std::to_string(i)] = 0;
  CHECK_THROWS_AS(parse_trained(trained_body(many)), WireError);
  CHECK_THROWS_AS(parse_trained(trained_body({1, {{"a\nb", 0.0}}})), WireError);
  CHECK_THROWS_AS(parse_trained(trained_body({1, {{std::string(300, 'a'), 0.0}}})), WireError);
}

TEST_CASE("a line holds both ends to the parts that were asked for") {
  std::vector<std::pair<FrameKind, std::string>> sent;
  PeerLine line([&](FrameKind kind, std::string body) { sent.emplace_back(kind, std::move(body)); },
                [](const std::string&) {});
  CHECK_THROWS_AS(line.frame(FrameKind::taken, ""), WireError);
  line.write(std::string(kPartBytes + 1, 'x'));
  line.flush();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].second.size() == kPartBytes);
  CHECK(sent[1].second == "x");
  std::string got(3, ' ');
  line.frame(FrameKind::part, "abcd");
  line.read(got.data(), 3);
  CHECK(got == "abc");
  CHECK(sent.back().first == FrameKind::taken);
  CHECK_THROWS_WITH(line.end_parts(), "more bytes than its head says");
  line.frame(FrameKind::save, "");
  CHECK_THROWS_WITH(line.read(got.data(), 3), "less bytes than its head says");
  line.frame(FrameKind::part, "");
  CHECK_THROWS_AS(line.read(got.data(), 1), WireError);
  CHECK_THROWS_WITH(
      [&] {
        for (int i = 0; i < 1000; ++i) line.frame(FrameKind::part, "x");
      }(),
      "it sends more than was asked for");
  line.closed("gone");
  CHECK_THROWS_WITH(line.next(), "gone");
  CHECK_THROWS_WITH(line.send(FrameKind::save), "gone");
}

}  // namespace motley::actors
