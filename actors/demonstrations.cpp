#include "actors/demonstrations.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <variant>

#include "envs/interaction.h"
#include "envs/shuffle.h"

namespace motley::actors {
namespace {

using Demonstration = Demonstrations::Demonstration;
using Stop = Demonstrations::Stop;

/// What the turns of an episode read, and what is to be answered.
using Turns = std::vector<std::pair<std::string, std::string>>;

/// Throws std::invalid_argument: a character that no symbol covers, or no room for all of it.
Demonstration demonstration(const envs::Tokenizer& tokenizer, int64_t max_positions, const Turns& turns) {
  Demonstration out;
  const auto append = [&](const std::string& text) {
    for (const int32_t id : tokenizer.encode(text)) out.tokens.push_back(id);
  };
  for (const auto& [prompt, answer] : turns) {
    append(prompt);
    out.loss_mask.resize(out.tokens.size(), 0);
    append(answer);
    out.tokens.push_back(tokenizer.eos());
    out.loss_mask.resize(out.tokens.size(), 1);
  }
  if (static_cast<int64_t>(out.tokens.size()) > max_positions)
    throw std::invalid_argument(fmt::format("a demonstration of {} tokens is longer than model.max_positions, {}",
                                            out.tokens.size(), max_positions));
  return out;
}

/// {"prompt", "answer"} lines of a user's file.
std::vector<std::pair<std::string, std::string>> read_pairs(const std::string& file, const envs::Tokenizer& tokenizer,
                                                            int64_t max_positions) {
  std::ifstream in(file);
  if (!in) throw envs::TaskError(file + ": cannot be read (warmstart.data)");
  std::vector<std::pair<std::string, std::string>> pairs;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto where = fmt::format("{}:{}: ", file, number);
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object()) throw envs::TaskError(where + "not a JSON object; wanted {\"prompt\": ..., \"answer\": ...}");
    for (const char* key : {"prompt", "answer"})
      if (!row.contains(key) || !row[key].is_string())
        throw envs::TaskError(where + "no text under \"" + key + "\"; wanted {\"prompt\": ..., \"answer\": ...}");
    if (row["prompt"].get<std::string>().empty()) throw envs::TaskError(where + "the prompt is empty");
    pairs.emplace_back(row["prompt"], row["answer"]);
    try {
      demonstration(tokenizer, max_positions, {pairs.back()});
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError(where + error.what());
    }
  }
  if (pairs.empty()) throw envs::TaskError(file + ": no pairs in it (warmstart.data)");
  return pairs;
}

/// Makes demonstrations 0, 1, ... on threads, a bounded number of them ahead of who takes them.
class Players {
 public:
  using Make = std::function<Demonstration(uint64_t number)>;
  Players(uint64_t count, Make make) : count_(count), make_(std::move(make)) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { play(); });
  }
  ~Players() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  /// Waits for it; nothing: stop() was true meanwhile. Throws what making it threw.
  std::optional<Demonstration> get(uint64_t number, const Stop& stop) {
    constexpr std::chrono::milliseconds kStopPoll{20};
    std::unique_lock lock(mutex_);
    wanted_ = std::max(wanted_, number);
    room_.notify_all();
    while (!made_.contains(number)) {
      if (stop()) return std::nullopt;
      ready_.wait_for(lock, kStopPoll);
    }
    const auto& made = made_.at(number);
    if (const auto* error = std::get_if<std::exception_ptr>(&made)) std::rethrow_exception(*error);
    return std::get<Demonstration>(made);
  }
  /// It is not asked for again.
  void forget(uint64_t number) {
    const std::lock_guard lock(mutex_);
    made_.erase(number);
  }

 private:
  static constexpr int kThreads = 4;  // they mostly wait for other processes
  static constexpr uint64_t kAhead = 256;
  void play() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return ending_ || (next_ < count_ && next_ <= wanted_ + kAhead); });
      if (ending_) return;
      const uint64_t number = next_++;
      lock.unlock();
      std::variant<Demonstration, std::exception_ptr> made;
      try {
        made = make_(number);
      } catch (...) {
        made = std::current_exception();
      }
      lock.lock();
      made_[number] = std::move(made);
      ready_.notify_all();
    }
  }

  const uint64_t count_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::map<uint64_t, std::variant<Demonstration, std::exception_ptr>> made_;
  uint64_t next_ = 0, wanted_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

struct Demonstrations::State {
  const envs::TaskMix& tasks;
  const envs::Tokenizer& tokenizer;
  int64_t max_positions, reply_tokens;
  WarmstartOptions options;
  uint64_t seed;
  kernels::RandomStream random;                            // of pairs
  std::vector<std::pair<std::string, std::string>> pairs;  // of a file
  uint64_t count = 0;                                      // given so far
  std::unique_ptr<Players> players;                        // where a task's episodes are interactions

  const envs::Task& task(const envs::TaskMix::Pick& pick) const { return *tasks.entries()[pick.entry].task; }

  /// Of the tasks: the one of training problem `number`.
  Demonstration make(uint64_t number) const {
    const auto pick = tasks.training(number);
    if (task(pick).interacts()) {
      envs::InteractionExample example =
          task(pick).demonstrate(pick.problem, tokenizer, {.tokens = max_positions, .reply_tokens = reply_tokens});
      return {std::move(example.tokens), std::move(example.drawn)};
    }
    Turns turns{{pick.problem.prompt, pick.problem.demonstration}};
    for (const envs::Problem& question : pick.problem.more) turns.emplace_back(question.prompt, question.demonstration);
    try {
      return demonstration(tokenizer, max_positions, turns);
    } catch (const std::invalid_argument& error) {
      throw envs::TaskError("task " + tasks.entries()[pick.entry].name + ": " + error.what());
    }
  }
  std::optional<Demonstration> get(uint64_t number, const Stop& stop) {
    return players ? players->get(number, stop) : std::optional(make(number));
  }
  /// The number of the n-th that is given.
  uint64_t number(uint64_t n) const {
    const auto different = static_cast<uint64_t>(options.demonstrations);
    if (different == 0 || n < different) return n;
    return envs::shuffled(n % different, different, kernels::mix(seed, n / different));
  }
};

Demonstrations::Demonstrations(const Experiment& experiment, const envs::TaskMix& tasks,
                               const envs::Tokenizer& tokenizer, int64_t max_positions)
    : state_(new State{.tasks = tasks,
                       .tokenizer = tokenizer,
                       .max_positions = max_positions,
                       .reply_tokens = experiment.sampling.max_tokens,
                       .options = experiment.warmstart,
                       .seed = experiment.start_seed(),
                       .random = kernels::RandomStream({experiment.start_seed(), kernels::Purpose::data, 0, 0})}) {
  if (!state_->options.data.empty()) {
    state_->pairs = read_pairs(state_->options.data, tokenizer, max_positions);
    return;
  }
  bool played = false;
  for (const auto& entry : tasks.entries()) {
    if (!entry.task->has_demonstrations())
      throw envs::TaskError("task " + entry.name +
                            " has no demonstrations: give warmstart.data a JSONL of pairs, or set warmstart.steps = 0");
    played = played || entry.task->interacts();
  }
  if (!played) return;
  const auto needed = static_cast<uint64_t>(state_->options.steps * state_->options.batch);
  const auto different = static_cast<uint64_t>(state_->options.demonstrations);
  state_->players = std::make_unique<Players>(different == 0 ? needed : std::min(needed, different),
                                              [state = state_.get()](uint64_t number) { return state->make(number); });
}

Demonstrations::~Demonstrations() = default;

std::optional<Demonstration> Demonstrations::next(const Stop& stop) {
  State& s = *state_;
  if (!s.pairs.empty()) return demonstration(s.tokenizer, s.max_positions, {s.pairs[s.random.below(s.pairs.size())]});
  const uint64_t number = s.number(s.count++);
  auto made = s.get(number, stop);
  if (s.players && s.options.demonstrations == 0) s.players->forget(number);
  return made;
}

std::optional<std::string> Demonstrations::identity(const Stop& stop) {
  constexpr uint64_t kLookedAt = 256, kPlayed = 16;
  State& s = *state_;
  if (!s.pairs.empty()) {
    std::ifstream in(s.options.data, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  const auto made = static_cast<uint64_t>(s.options.steps * s.options.batch);
  const auto different = static_cast<uint64_t>(s.options.demonstrations);
  const uint64_t end = std::min({kLookedAt, made, different == 0 ? made : different});
  std::string text = fmt::format("{}|", different);
  for (uint64_t number = 0; number < end; ++number) {
    const auto pick = s.tasks.training(number);
    if (s.task(pick).interacts())
      text += fmt::format("{}\x1f{}\x1f{}\n", pick.problem.prompt, pick.problem.answer, pick.problem.demonstration);
    if (s.task(pick).interacts() && number >= kPlayed) continue;
    const auto demonstration = s.get(number, stop);
    if (!demonstration) return std::nullopt;
    text += fmt::format("{};{}\n", fmt::join(demonstration->tokens, ","), fmt::join(demonstration->loss_mask, ""));
  }
  return text;
}

}  // namespace motley::actors
