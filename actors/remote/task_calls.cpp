#include "actors/remote/task_calls.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "actors/interaction_driver.h"
#include "actors/remote/work_wire.h"
#include "actors/worker.h"

namespace motley::actors {
namespace {

constexpr std::chrono::seconds kCallsEnd{2};  // for calls that are under way at the end

}  // namespace

/// What the threads hold as well: a call that hangs may outlive who asked for it.
struct TaskCalls::State : std::enable_shared_from_this<State> {
  using Call = std::function<void()>;

  State(int64_t slots_wanted, Parse parser, Events events_wanted)
      : slots(slots_wanted), parse(std::move(parser)), events(std::move(events_wanted)) {}

  void start() {
    for (int64_t i = 0; i < slots; ++i) {
      ++threads;
      std::thread([me = shared_from_this()] { me->serve(); }).detach();
    }
  }

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ended || !calls.empty(); });
      if (ended) break;
      Call call = std::move(calls.front());
      calls.pop_front();
      ++running;
      lock.unlock();
      call();
      call = nullptr;  // what it holds ends here, not under the lock
      lock.lock();
      --running;
      leave_if_done();
    }
    --threads;
    changed.notify_all();
  }

  /// Under the lock.
  void add(Call call) {
    calls.push_back(std::move(call));
    changed.notify_one();
  }
  void leave_if_done() {
    if (!leaving || ended || running > 0 || !calls.empty() || std::exchange(left, true)) return;
    events.left();
    events.send(FrameKind::leaving, {});
  }

  void make_tasks_of(Setting setting) {
    try {
      const Experiment experiment = parse(setting.experiment);
      auto made = make_tasks(experiment, experiment.seed);
      for (const envs::TaskMix::Entry& entry : made->entries()) entry.task->require();
      const ReadyBody ready{static_cast<uint64_t>(slots), task_digests(*made, experiment.seed)};
      std::string names;
      for (const TaskDigest& task : ready.tasks) names += (names.empty() ? "" : ", ") + task.name;
      const std::lock_guard lock(mutex);
      tasks = std::move(made);
      tokenizer = std::move(setting.tokenizer);
      limits = {.tokens = setting.model.max_positions, .reply_tokens = experiment.sampling.max_tokens};
      vocabulary = setting.model.vocabulary;
      if (ended || leaving) return;
      events.send(FrameKind::ready, ready_body(ready));
      events.ready(names);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (ended) return;
      events.failed(std::current_exception());
      events.send(FrameKind::note, text_body(std::string("it cannot make calls into the tasks: ") + error.what()));
      events.send(FrameKind::leaving, {});
    }
  }

  /// Null: it does not live here, or is in a call.
  std::shared_ptr<InteractionDriver> take_interaction(uint64_t number) {
    auto found = interactions.extract(number);
    return found.empty() ? nullptr : std::move(found.mapped());
  }

  /// What the call comes to; an interaction that goes on is kept.
  EpisodeStep perform(const EpisodeJob& job, const std::shared_ptr<InteractionDriver>& driver) const {
    switch (job.call) {
      case EpisodeJob::Call::score:
        return score(*tasks, job);
      case EpisodeJob::Call::begin:
        return driver->begin();
      case EpisodeJob::Call::reply:
        return driver->replied(job.prompt, job.drawn);
      case EpisodeJob::Call::drop:
        if (driver) driver->drop();  // one that was over already is not here
        return {};
    }
    return {};
  }

  void answer(uint64_t number, EpisodeJob& job, std::shared_ptr<InteractionDriver> driver) {
    EpisodeStep step;
    try {
      if (job.call == EpisodeJob::Call::score || job.call == EpisodeJob::Call::begin)
        job.pick = std::make_shared<const envs::TaskMix::Pick>(tasks->training(job.training));
      if (job.call == EpisodeJob::Call::begin)
        driver = std::make_shared<InteractionDriver>(*tasks, job.pick, tokenizer, limits);
      step = perform(job, driver);
      const StepLimits held{.vocabulary = vocabulary,
                            .positions = limits.tokens,
                            .context = static_cast<int64_t>(job.prompt.size() + job.drawn.size()),
                            .replies = job.turns};
      if (const std::string wrong = wrong_step(step, held); !wrong.empty() && job.call != EpisodeJob::Call::drop)
        step = failed_step("it gave " + wrong);
    } catch (const std::exception& error) {
      step = failed_step(error.what());
    }
    const bool lives = driver && step.reply_tokens && job.call != EpisodeJob::Call::drop;
    const std::lock_guard lock(mutex);
    --open;
    if (ended) return;
    if (lives) interactions[job.interaction] = std::move(driver);
    events.send(FrameKind::worked, worked_body(number, step));
  }

  static EpisodeStep failed_step(const std::string& why) {
    EpisodeStep failed;
    failed.outcome.end = "failed";
    failed.outcome.failure = "a call into its task failed: " + why;
    return failed;
  }

  const int64_t slots;
  const Parse parse;
  std::mutex mutex;
  std::condition_variable changed;
  Events events;
  // Written once, before the first call.
  std::shared_ptr<const envs::TaskMix> tasks;
  envs::Tokenizer tokenizer;
  envs::InteractionLimits limits;
  int64_t vocabulary = 0;
  std::map<uint64_t, std::shared_ptr<InteractionDriver>> interactions;  // that live here and are not in a call
  std::deque<Call> calls;
  int64_t threads = 0, running = 0, open = 0;  // open: calls that the run waits for
  bool set = false, leaving = false, left = false, ended = false;
};

TaskCalls::TaskCalls(int64_t slots, Parse parse, Events events)
    : state_(std::make_shared<State>(slots, std::move(parse), std::move(events))) {
  state_->start();
}

TaskCalls::~TaskCalls() {
  std::map<uint64_t, std::shared_ptr<InteractionDriver>> interactions;
  {
    std::unique_lock lock(state_->mutex);
    state_->ended = true;
    state_->calls.clear();
    state_->changed.notify_all();
    interactions.swap(state_->interactions);
    state_->changed.wait_for(lock, kCallsEnd, [this] { return state_->threads == 0; });
  }
}

void TaskCalls::set(Setting setting) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (std::exchange(state.set, true)) throw WireError("a second setting");
  state.add([&state, setting = std::move(setting)]() mutable { state.make_tasks_of(std::move(setting)); });
}

void TaskCalls::work(std::string_view body) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (!state.tasks) throw WireError("work before the tasks are ready");
  if (state.leaving) return;  // the run has not heard of it yet
  auto [number, job] = parse_work(body, state.vocabulary);
  if (state.open >= state.slots) throw WireError("more calls at once than the worker makes");
  std::shared_ptr<InteractionDriver> driver;
  if (job.call == EpisodeJob::Call::reply || job.call == EpisodeJob::Call::drop)
    driver = state.take_interaction(job.interaction);
  if (job.call == EpisodeJob::Call::reply && !driver) throw WireError("a reply to an interaction that is not here");
  ++state.open;
  state.add([&state, number = number, job = std::make_shared<EpisodeJob>(std::move(job)),
             driver = std::move(driver)]() { state.answer(number, *job, driver); });
}

void TaskCalls::leave() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->leaving, true)) return;
  state_->events.send(FrameKind::closing, {});
  state_->leave_if_done();
}

}  // namespace motley::actors
