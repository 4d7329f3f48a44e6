// A worker's calls into tasks without a network: what it answers is what the run would have come to itself.
#include "actors/remote/task_calls.h"

#include <condition_variable>
#include <mutex>

#include "actors/remote/work_wire.h"
#include "actors/worker.h"
#include "tests/actors/interacting_task.h"

namespace motley::actors {
namespace {

struct Sent {
  FrameKind kind;
  std::string body;
};

/// The run's side of a worker.
struct Desk {
  explicit Desk(const Experiment& wanted, int64_t slots = 2)
      : experiment(wanted),
        tasks(make_tasks(experiment, experiment.seed)),
        tokenizer(tasks->tokenizer()),
        calls(slots, [this](const std::string&) { return experiment; },
              {.send =
                   [this](FrameKind kind, std::string body) {
                     add({kind, std::move(body)});
                   },
               .ready = [](const std::string&) {},
               .left = [this] { left = true; },
               .failed = [this](std::exception_ptr cause) { failed = std::move(cause); }}) {
    TransformerConfig model = experiment.model.config;
    model.vocabulary = tokenizer.size();
    calls.set({.experiment = "", .model = model.resolved(), .tokenizer = tokenizer});
  }
  void add(Sent frame) {
    const std::lock_guard lock(mutex);
    frames.push_back(std::move(frame));
    changed.notify_all();
  }
  Sent next(FrameKind kind) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return !frames.empty(); }));
    Sent frame = std::move(frames.front());
    frames.erase(frames.begin());
    REQUIRE(frame.kind == kind);
    return frame;
  }
  EpisodeStep answer(const EpisodeJob& job) {
    calls.work(work_body(++number, job));
    const auto [answered, step] = parse_worked(next(FrameKind::worked).body);
    CHECK(answered == number);
    return step;
  }
  const Experiment experiment;
  const std::shared_ptr<const envs::TaskMix> tasks;
  const envs::Tokenizer tokenizer;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Sent> frames;
  std::atomic<bool> left{false};
  std::exception_ptr failed;
  uint64_t number = 0;
  TaskCalls calls;
};

EpisodeJob begin_job(uint64_t interaction) {
  return {.call = EpisodeJob::Call::begin, .training = 3, .interaction = interaction};
}

}  // namespace

TEST_CASE("a worker's rewards are those of the run, bit for bit, and so is what fails") {
  Experiment experiment = tiny_experiment(true);
  experiment.tasks[0].options["questions"] = "3";
  experiment.tasks[0].options["digits"] = "2";
  Desk desk(experiment);
  const ReadyBody ready = parse_ready(desk.next(FrameKind::ready).body);
  CHECK(ready.slots == 2);
  CHECK(ready.tasks == task_digests(*desk.tasks, experiment.seed));
  for (uint64_t n = 0; n < 20; ++n) {
    const auto pick = std::make_shared<const envs::TaskMix::Pick>(desk.tasks->training(n));
    EpisodeJob job{.training = n, .turns = 3, .pick = pick};
    job.replies = {{pick->problem.answer, true}, {n % 2 == 0 ? "7" : pick->problem.more[0].answer, true}, {"x", false}};
    const EpisodeStep here = score(*desk.tasks, job), there = desk.answer(job);
    CHECK(std::bit_cast<uint64_t>(there.outcome.reward.value) == std::bit_cast<uint64_t>(here.outcome.reward.value));
    CHECK(there.outcome.reward.parts == here.outcome.reward.parts);
    CHECK(there.outcome.reward.turns == here.outcome.reward.turns);
    CHECK(there.outcome.reward.value > 0.0);
  }
}

TEST_CASE("interactions live at a worker from their beginning to their end, and end with it") {
  Experiment experiment = tiny_experiment(true);
  const auto faults = use_interacting_task(experiment, "calls_interact");
  faults->choose = [](int64_t episode) { return episode == 1 ? Fault::reads_no_token : Fault::none; };
  {
    Desk desk(experiment);
    desk.next(FrameKind::ready);
    const EpisodeStep begun = desk.answer(begin_job(1));
    CHECK(begun.reply_tokens == 3);
    CHECK(begun.read == desk.tokenizer.encode("1="));
    const EpisodeStep fails = desk.answer(begin_job(2));
    CHECK_FALSE(fails.reply_tokens);
    CHECK(fails.outcome.failure.find("a token outside the vocabulary") != std::string::npos);
    EpisodeJob reply{.call = EpisodeJob::Call::reply, .interaction = 1, .turns = 1};
    reply.prompt = begun.read;
    reply.drawn = desk.tokenizer.encode("2");
    const EpisodeStep asked = desk.answer(reply);
    CHECK(asked.read == desk.tokenizer.encode("1="));
    reply.prompt.insert(reply.prompt.end(), reply.drawn.begin(), reply.drawn.end());
    reply.prompt.insert(reply.prompt.end(), asked.read.begin(), asked.read.end());
    reply.turns = 2;
    const EpisodeStep over = desk.answer(reply);
    CHECK(over.outcome.end == "submitted");
    CHECK(over.outcome.reward.value == 1.0);
    CHECK(faults->alive == 0);
    desk.answer(begin_job(3));
    CHECK(faults->alive == 1);
    desk.answer({.call = EpisodeJob::Call::drop, .interaction = 3});
    CHECK(faults->alive == 0);
    desk.answer({.call = EpisodeJob::Call::drop, .interaction = 3});  // one that is over already
    desk.answer(begin_job(4));
  }
  CHECK(faults->alive == 0);
}

TEST_CASE("what no run asks for is refused: calls too early, too many, or of an interaction that is not there") {
  Experiment experiment = tiny_experiment(true);
  const auto faults = use_interacting_task(experiment, "calls_too_many");
  faults->choose = [](int64_t) { return Fault::hangs; };
  faults->hang = std::chrono::milliseconds(200);
  Desk desk(experiment, 1);
  desk.next(FrameKind::ready);
  CHECK_THROWS_WITH(desk.calls.work(work_body(1, {.call = EpisodeJob::Call::reply, .interaction = 9})),
                    "a reply to an interaction that is not here");
  CHECK_THROWS_WITH(desk.calls.set({}), "a second setting");
  EpisodeJob reply{.call = EpisodeJob::Call::reply, .interaction = 1, .turns = 1};
  reply.prompt = desk.answer(begin_job(1)).read;
  reply.drawn = desk.tokenizer.encode("2");
  desk.calls.work(work_body(2, reply));
  CHECK_THROWS_WITH(desk.calls.work(work_body(3, begin_job(2))), "more calls at once than the worker makes");
  desk.calls.leave();
  desk.next(FrameKind::closing);
  CHECK_FALSE(desk.left);
  desk.calls.work(work_body(4, begin_job(3)));  // from before the run has heard of it: passed over
  desk.next(FrameKind::worked);
  desk.next(FrameKind::leaving);
  CHECK(desk.left);
}

TEST_CASE("a worker that lacks what the tasks need says so") {
  Experiment experiment = tiny_experiment(true);
  use_interacting_task(experiment, "calls_lack")->lacking = "no sandboxes here";
  Desk desk(experiment);
  CHECK(parse_text(desk.next(FrameKind::note).body) == "it cannot make calls into the tasks: no sandboxes here");
  desk.next(FrameKind::leaving);
  REQUIRE(desk.failed);
  CHECK_THROWS_AS(std::rethrow_exception(desk.failed), envs::TaskError);
}

}  // namespace motley::actors
