// Tasks and their episodes. Token in, token out: sampled tokens are never decoded and encoded again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tokenizer.h"

namespace motley::envs {

/// A value of a task's table in the TOML: whole number, number, text or boolean.
struct Option {
  std::string name;
  std::string help;
  enum class Kind : uint8_t { integer, number, text, boolean } kind = Kind::integer;
  std::string default_value{};         // as text
  double minimum = 0, maximum = 0;     // for integer and number
  std::vector<std::string> allowed{};  // for text; empty: any
};
using Options = std::map<std::string, std::string>;  // as text, already checked against the Option table

/// One prompt of a task: what the model sees, what a right answer is, and a demonstration for the warm start.
struct Problem {
  std::string prompt;
  std::string answer;           // reference for the reward
  std::string demonstration;    // text of a perfect reply, without the end token; empty if the task has none
  std::vector<Problem> more{};  // further questions of the episode, one a turn; they have none of their own
};

/// What the model wrote in one turn.
struct Reply {
  std::string text;    // without the end token
  bool ended = false;  // with the end token
};

struct Reward {
  double value = 0.0;                   // finite, in [0, 1] for the tasks that ship
  std::map<std::string, double> parts;  // named parts ("correct", "format")
  bool format_error = false;
  std::vector<double> turns{};  // what each reply earned of the value; empty: there is one reply
};

class Interaction;
struct InteractionExample;
struct InteractionLimits;

/// A source of problems with a reward. Thread-safe after construction (all methods const).
class Task {
 public:
  virtual ~Task() = default;
  /// Symbols that its prompts and answers need, in a fixed order.
  virtual std::vector<std::string> symbols() const = 0;
  /// Whether what is read and written may hold any bytes, as the output of a shell.
  virtual bool any_bytes() const { return false; }
  /// Special tokens that its prompts need beside <pad>, <bos> and <eos>: those of a chat format.
  virtual std::vector<std::string> markers() const { return {}; }
  /// Problem number `index` of the set: an endless generated set (epoch_size absent) or a finite one (index is below
  /// epoch_size). Depends on seed and index alone. Held-out problems (`held_out`) never occur in training.
  virtual Problem problem(uint64_t seed, uint64_t index, bool held_out) const = 0;
  virtual std::optional<uint64_t> epoch_size(bool held_out) const = 0;
  /// Scores the text of a reply (without the end token) to one question: `problem` itself, without its further ones.
  /// `ended`: the reply ended with the end token.
  virtual Reward reward(const Problem& problem, std::string_view reply, bool ended) const = 0;
  /// Named subsets of its held-out problems, such as "hard": their indices, in order. For finite sets.
  virtual std::map<std::string, std::vector<uint64_t>> held_out_sets() const { return {}; }
  virtual bool has_demonstrations() const = 0;
  /// Called before anything starts. Throws TaskError saying what this machine lacks for its episodes, and what to do.
  virtual void require() const {}

  /// Whether its episodes are interactions (envs/interaction.h): problem() says what they are about, and neither
  /// Problem::more nor reward() is used.
  virtual bool interacts() const { return false; }
  /// Begins an episode; may block, and keeps nothing of the arguments but the tokenizer. Throws what makes the episode
  /// fail, such as SandboxError. Base: std::logic_error.
  virtual std::unique_ptr<Interaction> interact(const Problem& problem, const Tokenizer& tokenizer,
                                                const InteractionLimits& limits) const;
  /// How long a call into one of its interactions, or the beginning of one, can take within its own limits: who waits
  /// longer may give the episode up.
  virtual std::chrono::seconds longest_call() const { return std::chrono::minutes(10); }
  /// The perfect episode of a problem, really played; may block. Throws TaskError. Base: std::logic_error.
  virtual InteractionExample demonstrate(const Problem& problem, const Tokenizer& tokenizer,
                                         const InteractionLimits& limits) const;
};

struct TaskInfo {
  std::string name;
  std::string summary;
  std::vector<Option> options;
  std::function<std::unique_ptr<Task>(const Options&)> make;  // throws TaskError
};
/// Bad task data, with file and line where there is one: the user's input.
class TaskError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
bool register_task(TaskInfo info);
const std::vector<TaskInfo>& tasks();  // by name, sorted
const TaskInfo* find_task(std::string_view name);

class Schedule;
inline constexpr const char* kFullSet = "full";  // the held-out set of everything

/// Several tasks mixed by weight: which task and which of its problems the n-th prompt of a run is. A pure function of
/// (seed, n), so that it resumes from a number.
class TaskMix {
 public:
  struct Entry {
    std::string name;  // unique in the mix: the env's name, with #2 etc. when used twice
    std::unique_ptr<Task> task;
    double weight = 1.0;
  };
  /// Throws TaskError: no entries, a name twice, a weight that is not positive and finite.
  /// `trains`: false where nobody asks for training problems, and there may be none.
  TaskMix(std::vector<Entry> entries, uint64_t seed, bool trains = true);
  struct Pick {
    size_t entry = 0;
    uint64_t epoch = 0, index = 0;  // index within the epoch (shuffled per epoch for finite sets)
    Problem problem;
  };
  Pick training(uint64_t n) const;
  /// The n-th held-out problem (round robin over tasks by weight), in the order of the set and the same for every seed
  /// of a run, so that runs are compared on the same prompts. Finite sets start again after held_out_size.
  Pick held_out(uint64_t n) const;
  /// How many of `wanted` held-out problems there are before one of a finite set comes again.
  uint64_t held_out_size(uint64_t wanted) const;
  /// The held-out sets: kFullSet, then those that tasks name.
  std::vector<std::string> held_out_sets() const;
  /// The first `wanted` problems of a set, or as many as it has, none twice. kFullSet: held_out(0) and those after it;
  /// another: its problems of all tasks in turn. Throws TaskError, naming the sets: there is no such.
  std::vector<Pick> held_out_set(const std::string& name, uint64_t wanted) const;
  /// What the tasks need and a tokenizer has not: "symbol \"=\"", "special token <|im_start|>"; empty: nothing.
  std::string lacking(const Tokenizer& tokenizer) const;
  const std::vector<Entry>& entries() const { return entries_; }
  /// One tokenizer over the symbols and markers of all tasks, in order, without repeats.
  Tokenizer tokenizer() const;

 private:
  Pick held_out_problem(size_t entry, uint64_t earlier) const;
  std::vector<Entry> entries_;
  uint64_t seed_;
  std::shared_ptr<const Schedule> schedule_;
};

}  // namespace motley::envs
