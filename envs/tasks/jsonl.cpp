// jsonl: problems from a file, answers checked as exact text, as a number, by a regular expression or by a program.
#include "envs/jsonl.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

#include "envs/answers.h"
#include "envs/held_out.h"
#include "envs/options.h"
#include "envs/reward_program.h"
#include "envs/utf8.h"

namespace motley::envs {

namespace {

constexpr double kMostProgramSeconds = 25;  // a run waits 30 s for a reward

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {.name = "path", .help = "file of {\"prompt\": ..., \"answer\": ...}, one a line", .kind = Option::Kind::text},
      {.name = "held_out",
       .help = "file of the held-out problems; empty: a tenth of the lines of path, by a hash of the prompt",
       .kind = Option::Kind::text},
      {.name = "answer",
       .help = "how a reply is checked",
       .kind = Option::Kind::text,
       .default_value = "exact",
       .allowed = {"exact", "number", "regex", "program"}},
      {.name = "program",
       .help = "with answer = \"program\": command for sh -c; it gets the episode as JSON and prints the reward",
       .kind = Option::Kind::text},
      {.name = "program_seconds",
       .help = "within which the program prints the reward, else the episode fails",
       .kind = Option::Kind::number,
       .default_value = "10",
       .minimum = 0.05,
       .maximum = kMostProgramSeconds},
  };
  return table;
}

class Jsonl final : public Task {
 public:
  explicit Jsonl(const OptionValues& values)
      : answer_(values.text("answer")), program_(values.text("program"), values.number("program_seconds")) {
    const std::string &path = values.text("path"), &held_out = values.text("held_out");
    if (path.empty()) throw TaskError("task jsonl: option path must name a file");
    if (values.text("program").empty() != (answer_ != "program"))
      throw TaskError("task jsonl: answer = \"program\" and program = \"a command\" belong together");
    training_ = load(path);
    if (held_out.empty()) {
      hold_out(path);
    } else {
      held_out_ = load(held_out);
      refuse_common(path, held_out);
    }
  }

  std::vector<std::string> symbols() const override {
    std::set<std::string> characters;
    for (const auto* lines : {&training_, &held_out_}) {
      for (const JsonlLine& line : *lines) {
        for (const std::string_view text : {std::string_view(line.prompt), std::string_view(line.answer)}) {
          for (size_t at = 0; at < text.size();) {
            const size_t length = character_at(text, at).length;
            characters.emplace(text.substr(at, length));
            at += length;
          }
        }
      }
    }
    return {characters.begin(), characters.end()};
  }

  Problem problem(uint64_t, uint64_t index, bool held_out) const override {
    const JsonlLine& line = (held_out ? held_out_ : training_).at(index);
    return {line.prompt, line.answer, has_demonstrations() ? line.answer : ""};
  }

  std::optional<uint64_t> epoch_size(bool held_out) const override { return (held_out ? held_out_ : training_).size(); }
  bool has_demonstrations() const override { return answer_ == "exact" || answer_ == "number"; }

  Reward reward(const Problem& problem, std::string_view reply, bool ended) const override {
    if (answer_ == "program") return {program_.score(as_json(problem, reply, ended)), {}, !ended};
    bool format = ended && reply.size() <= kMaxReplyBytes && is_utf8(reply), correct = false;
    if (answer_ == "number") {
      const auto number = parse_number(reply), wanted = parse_number(problem.answer);
      format = format && number;
      correct = number && wanted && numbers_agree(*number, *wanted);
    } else if (answer_ == "regex") {
      const auto known = patterns_.find(problem.answer);
      correct = (known != patterns_.end() ? known->second : AnswerPattern(problem.answer)).matches(reply);
    } else {
      correct = reply == problem.answer;
    }
    return {format && correct ? 1.0 : 0.0, {{"correct", correct ? 1.0 : 0.0}, {"format", format ? 1.0 : 0.0}}, !format};
  }

 private:
  std::vector<JsonlLine> load(const std::string& path) {
    std::vector<JsonlLine> lines = read_jsonl(path, answer_ == "number");
    for (const JsonlLine& line : lines) {
      const std::string place = jsonl_place(path, line.number);
      if (answer_ == "number" && !parse_number(line.answer)) {
        throw TaskError(place + "the answer \"" + line.answer + "\" is not a number");
      }
      if (answer_ == "exact" && line.answer.size() > kMaxReplyBytes) {
        throw TaskError(place + "the answer is longer than " + std::to_string(kMaxReplyBytes) + " bytes");
      }
      if (answer_ != "regex" || patterns_.contains(line.answer)) continue;
      try {
        patterns_.emplace(line.answer, AnswerPattern(line.answer));
      } catch (const std::invalid_argument& error) {
        throw TaskError(place + "the answer \"" + line.answer + "\": " + error.what());
      }
    }
    return lines;
  }

  /// Moves a tenth of the prompts to the held-out set. In a file so small that the hash leaves one side empty, the
  /// prompt with the lowest hash is held out.
  void hold_out(const std::string& path) {
    std::map<uint64_t, bool> held_out;  // by hash of the prompt
    size_t count = 0;
    for (const JsonlLine& line : training_) {
      const bool held = is_held_out(line.prompt);
      if (held_out.emplace(text_hash(line.prompt), held).second && held) ++count;
    }
    if (held_out.size() < 2) {
      throw TaskError(path +
                      ": one prompt cannot be shared out to training and held-out problems; name a held_out file");
    }
    if (count == 0 || count == held_out.size()) {
      for (auto& [hash, held] : held_out) held = hash == held_out.begin()->first;
    }
    const auto first_held = std::stable_partition(training_.begin(), training_.end(), [&](const JsonlLine& line) {
      return !held_out.at(text_hash(line.prompt));
    });
    held_out_.assign(std::make_move_iterator(first_held), std::make_move_iterator(training_.end()));
    training_.erase(first_held, training_.end());
  }

  void refuse_common(const std::string& path, const std::string& held_out) const {
    std::map<std::string_view, uint64_t> trained;
    for (const JsonlLine& line : training_) trained.emplace(line.prompt, line.number);
    for (const JsonlLine& line : held_out_) {
      const auto found = trained.find(line.prompt);
      if (found == trained.end()) continue;
      throw TaskError(jsonl_place(held_out, line.number) + "this held-out prompt is also a training prompt, " + path +
                      ":" + std::to_string(found->second));
    }
  }

  /// Bytes of a reply that are no UTF-8 become U+FFFD.
  static std::string as_json(const Problem& problem, std::string_view reply, bool ended) {
    const nlohmann::json episode{
        {"prompt", problem.prompt}, {"answer", problem.answer}, {"reply", reply}, {"ended", ended}};
    return episode.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  std::string answer_;
  RewardProgram program_;
  std::vector<JsonlLine> training_, held_out_;
  std::map<std::string, AnswerPattern, std::less<>> patterns_;
};

[[maybe_unused]] const bool registered =
    register_task({"jsonl", "problems from a file, answers checked as text, number, regular expression or by a program",
                   options(), [](const Options& given) -> std::unique_ptr<Task> {
                     return std::make_unique<Jsonl>(OptionValues("jsonl", options(), given));
                   }});

}  // namespace

}  // namespace motley::envs
