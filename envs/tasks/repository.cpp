// repository: an agent works on a repository task in a sandbox, and earns 1 if its tree passes the hidden tests.
#include <algorithm>
#include <mutex>

#include "envs/held_out.h"
#include "envs/interaction.h"
#include "envs/options.h"
#include "envs/repository/generate.h"
#include "envs/repository/session.h"
#include "envs/sandbox/support.h"

namespace motley::envs {

namespace {

std::string joined(const std::vector<std::string>& names, const std::string& separator) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : separator) + name;
  return text;
}

const std::vector<Option>& options() {
  using Kind = Option::Kind;
  static const std::vector<Option> table{
      {.name = "path",
       .help = "file or folder of tasks (docs/repository-tasks.md); empty: generated ones",
       .kind = Kind::text},
      {.name = "families",
       .help = "of generated tasks, separated by commas",
       .kind = Kind::text,
       .default_value = joined(task_families(), ",")},
      {.name = "count",
       .help = "generated tasks, a tenth of them held out",
       .default_value = "5000",
       .minimum = 10,
       .maximum = 100000},
      {.name = "task_seed", .help = "of generated tasks", .default_value = "1", .minimum = 0, .maximum = 1e15},
      {.name = "format",
       .help = "chat format (docs/chat.md)",
       .kind = Kind::text,
       .default_value = "compact",
       .allowed = {"chatml", "compact", "llama3"}},
      {.name = "system",
       .help = "system text, where the format has one",
       .kind = Kind::text,
       .default_value = "You mend a program in a work tree. Submit when it is mended."},
      {.name = "turns",
       .help = "replies of an episode; a task's own limit holds as well",
       .default_value = "32",
       .minimum = 1,
       .maximum = 1000},
      {.name = "tokens",
       .help = "of an episode, read and drawn; model.max_positions holds as well",
       .default_value = "4096",
       .minimum = 16,
       .maximum = 1048576},
      {.name = "observation_tokens",
       .help = "that a command's result takes at most",
       .default_value = "512",
       .minimum = 16,
       .maximum = 1048576},
      {.name = "format_errors",
       .help = "replies in a row without a valid call that end an episode",
       .default_value = "3",
       .minimum = 1,
       .maximum = 1000},
      {.name = "seconds",
       .help = "of an episode's commands together; a task's own limit holds as well",
       .kind = Kind::number,
       .default_value = "600.0",
       .minimum = 0.1,
       .maximum = 86400},
      {.name = "hasty",
       .help = "share of demonstrations that submit before their last command: a habit for the reward to cure",
       .kind = Kind::number,
       .default_value = "0.0",
       .minimum = 0,
       .maximum = 1},
  };
  return table;
}

/// What the episodes of a set have in common; outlives all of them.
struct RepositorySet {
  std::vector<RepositoryTask> tasks;
  std::vector<size_t> training, held_out;  // places in tasks
  std::map<std::string, size_t, std::less<>> by_id;
  std::string format, system;
  AgentLimits limits;
  double hasty = 0;
};

std::vector<std::string> families_of(const std::string& list) {
  std::vector<std::string> families;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string name = list.substr(at, end - at);
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    const auto& known = task_families();
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw TaskError("task repository: option families is \"" + list + "\"; it must be names out of " +
                      joined(known, ", ") + ", separated by commas");
    if (std::find(families.begin(), families.end(), name) == families.end()) families.push_back(std::move(name));
    at = end + 1;
  }
  return families;
}

/// A task without "held_out" is held out by the hash of its id. Where that leaves one side empty, the task with the
/// lowest hash changes sides: a small set has both all the same.
void split(RepositorySet& set, const std::string& path) {
  std::vector<size_t> free;
  for (size_t i = 0; i < set.tasks.size(); ++i) {
    const RepositoryTask& task = set.tasks[i];
    if (!task.held_out) free.push_back(i);
    (task.held_out.value_or(is_held_out(task.id)) ? set.held_out : set.training).push_back(i);
  }
  for (auto [empty, full] : {std::pair(&set.held_out, &set.training), std::pair(&set.training, &set.held_out)}) {
    if (!empty->empty()) continue;
    if (free.empty() || full->size() < 2) continue;
    const size_t moved = *std::min_element(free.begin(), free.end(), [&](size_t a, size_t b) {
      return text_hash(set.tasks[a].id) < text_hash(set.tasks[b].id);
    });
    full->erase(std::find(full->begin(), full->end(), moved));
    empty->push_back(moved);
  }
  if (set.held_out.empty())
    throw TaskError(path + ": none of its tasks is held out; \"held_out\" of a task says which it is");
}

std::shared_ptr<const RepositorySet> make_set(const OptionValues& values) {
  auto set = std::make_shared<RepositorySet>();
  const std::string& path = values.text("path");
  set->tasks = path.empty() ? generate_tasks(static_cast<uint64_t>(values.integer("task_seed")),
                                             static_cast<uint64_t>(values.integer("count")),
                                             families_of(values.text("families")))
                            : load_repository_tasks(path);
  for (size_t i = 0; i < set->tasks.size(); ++i) set->by_id.emplace(set->tasks[i].id, i);
  split(*set, path.empty() ? "task repository" : path);
  if (!path.empty())  // by their ids, tasks of a kind would stand together, and the first ones would be of one kind
    std::stable_sort(set->held_out.begin(), set->held_out.end(),
                     [&](size_t a, size_t b) { return text_hash(set->tasks[a].id) < text_hash(set->tasks[b].id); });
  set->format = values.text("format");
  set->system = values.text("system");
  set->limits = {.turns = values.integer("turns"),
                 .tokens = values.integer("tokens"),
                 .observation_tokens = values.integer("observation_tokens"),
                 .format_errors = values.integer("format_errors"),
                 .seconds = values.number("seconds")};
  set->hasty = values.number("hasty");
  return set;
}

AgentLimits limits_of(const RepositorySet& set, const InteractionLimits& model) {
  AgentLimits limits = set.limits;
  limits.tokens = std::min(limits.tokens, model.tokens);
  limits.reply_tokens = model.reply_tokens;
  return limits;
}

class RepositoryInteraction final : public Interaction {
 public:
  RepositoryInteraction(std::shared_ptr<SandboxHost> host, std::shared_ptr<const RepositorySet> set, size_t number,
                        const Tokenizer& tokenizer, const InteractionLimits& model)
      : host_(std::move(host)),
        set_(std::move(set)),
        format_(set_->format, tokenizer),
        episode_(*host_, set_->tasks[number], format_, limits_of(*set_, model), set_->system) {}

  std::optional<int64_t> begin() override { return episode_.begin(); }
  std::optional<int64_t> replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) override {
    return episode_.replied(prompt, reply);
  }
  const std::vector<int32_t>& context() const override { return episode_.episode().context(); }
  const std::vector<uint8_t>& drawn() const override { return episode_.episode().drawn(); }

  InteractionOutcome outcome() override {
    const AgentEpisode& episode = episode_.episode();
    const EpisodeEnd end = episode.end().value_or(EpisodeEnd::failed);
    InteractionOutcome outcome;
    outcome.end = name_of(end);
    outcome.format_errors = episode.format_errors();
    outcome.truncated =
        end == EpisodeEnd::turn_limit || end == EpisodeEnd::token_limit || end == EpisodeEnd::time_limit;
    if (episode.turns().empty()) {  // nobody was asked: not the model's failure
      outcome.failure =
          "the issue takes " + std::to_string(episode.context().size()) + " tokens, and leaves no room for a reply";
      return outcome;
    }
    const Score score = episode_.score();
    if (score.kind == Score::Kind::error) {
      outcome.failure = score.reason.empty() ? "no score" : score.reason;
      return outcome;
    }
    outcome.reward = {score.reward(), {{"passed", score.reward()}}, episode.format_errors() > 0};
    return outcome;
  }

 private:
  std::shared_ptr<SandboxHost> host_;
  std::shared_ptr<const RepositorySet> set_;
  ChatFormat format_;
  RepositoryEpisode episode_;
};

class Repository final : public Task {
 public:
  explicit Repository(const OptionValues& values) : set_(make_set(values)), generated_(values.text("path").empty()) {}

  std::vector<std::string> symbols() const override { return generated_ ? task_symbols() : std::vector<std::string>{}; }
  bool any_bytes() const override { return true; }
  std::vector<std::string> markers() const override { return find_chat_template(set_->format)->needed; }

  Problem problem(uint64_t, uint64_t index, bool held_out) const override {
    const RepositoryTask& task = set_->tasks[(held_out ? set_->held_out : set_->training).at(index)];
    return {.prompt = task.issue, .answer = task.id, .demonstration = ""};
  }
  std::optional<uint64_t> epoch_size(bool held_out) const override {
    return (held_out ? set_->held_out : set_->training).size();
  }
  Reward reward(const Problem&, std::string_view, bool) const override {
    throw std::logic_error("a repository task scores whole episodes");
  }
  std::map<std::string, std::vector<uint64_t>> held_out_sets() const override {
    std::map<std::string, std::vector<uint64_t>> sets;
    for (uint64_t i = 0; i < set_->held_out.size(); ++i)
      for (const std::string& name : set_->tasks[set_->held_out[i]].sets) sets[name].push_back(i);
    return sets;
  }
  bool has_demonstrations() const override {
    return std::all_of(set_->training.begin(), set_->training.end(),
                       [&](size_t i) { return !set_->tasks[i].demonstration.empty(); });
  }
  void require() const override {
    try {
      require_sandboxes();
    } catch (const SandboxError& error) {
      throw TaskError(std::string("task repository: ") + error.what());
    }
  }

  bool interacts() const override { return true; }
  std::unique_ptr<Interaction> interact(const Problem& problem, const Tokenizer& tokenizer,
                                        const InteractionLimits& limits) const override {
    return std::make_unique<RepositoryInteraction>(host(), set_, number_of(problem), tokenizer, limits);
  }
  std::chrono::seconds longest_call() const override {
    int64_t longest = 0;  // a command that is the last, and the tests
    for (const RepositoryTask& task : set_->tasks)
      longest = std::max(longest, task.limits.call_seconds + task.limits.test_seconds);
    constexpr int64_t kAround = 180;  // sandboxes begin, are read and end
    return std::chrono::seconds(longest + kAround);
  }
  InteractionExample demonstrate(const Problem& problem, const Tokenizer& tokenizer,
                                 const InteractionLimits& limits) const override {
    const ChatFormat format(set_->format, tokenizer);
    const RepositoryTask& task = set_->tasks[number_of(problem)];
    kernels::RandomStream random({text_hash(task.id), kernels::Purpose::data, 0, 0});
    Transcript played =
        demonstrate_task(*host(), task, format, limits_of(*set_, limits), set_->system, random.uniform() < set_->hasty);
    return {std::move(played.tokens), std::move(played.drawn)};
  }

 private:
  size_t number_of(const Problem& problem) const {
    const auto found = set_->by_id.find(problem.answer);
    if (found == set_->by_id.end()) throw std::logic_error("no repository task " + problem.answer);
    return found->second;
  }
  /// Made when it is first needed, so that tasks can be looked at where there are no sandboxes.
  std::shared_ptr<SandboxHost> host() const {
    const std::lock_guard lock(making_);
    if (!host_) host_ = std::make_shared<SandboxHost>();
    return host_;
  }

  std::shared_ptr<const RepositorySet> set_;
  bool generated_;
  mutable std::mutex making_;
  mutable std::shared_ptr<SandboxHost> host_;
};

[[maybe_unused]] const bool registered =
    register_task({"repository", "an agent works on a repository task in a sandbox; its tree is tested", options(),
                   [](const Options& given) -> std::unique_ptr<Task> {
                     return std::make_unique<Repository>(OptionValues("repository", options(), given));
                   }});

}  // namespace

}  // namespace motley::envs
