// running_sum: numbers modulo a base in, their running sums out. A reply has as many steps as the prompt, only the last
// sum counts, and a guess is right once in `base` times.
#include <optional>
#include <string>

#include "envs/held_out.h"
#include "envs/options.h"

namespace motley::envs {

namespace {

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {.name = "numbers", .help = "numbers in a prompt", .default_value = "10", .minimum = 1, .maximum = 256},
      {.name = "base",
       .help = "numbers and sums are modulo this",
       .default_value = "20",
       .minimum = 2,
       .maximum = 1000},
  };
  return table;
}

struct Drawn {
  std::string prompt, sums;
  const std::string& identity() const { return prompt; }
};

class RunningSum final : public Task {
 public:
  explicit RunningSum(const OptionValues& values)
      : count_(static_cast<size_t>(values.integer("numbers"))),
        base_(static_cast<uint64_t>(values.integer("base"))),
        width_(std::to_string(base_ - 1).size()) {
    for (const bool held_out : {false, true}) problem(0, 0, held_out);
  }

  std::vector<std::string> symbols() const override {
    std::vector<std::string> symbols;
    for (uint64_t value = 0; value < base_; ++value) symbols.push_back(symbol(value));
    symbols.push_back("=");
    return symbols;
  }

  Problem problem(uint64_t seed, uint64_t index, bool held_out) const override {
    Drawn drawn = draw_problem(seed, index, held_out, [&](kernels::RandomStream& stream) {
      Drawn numbers;
      uint64_t sum = 0;
      for (size_t i = 0; i < count_; ++i) {
        const uint64_t value = stream.below(base_);
        sum = (sum + value) % base_;
        numbers.prompt += symbol(value);
        numbers.sums += symbol(sum);
      }
      return numbers;
    });
    return {drawn.prompt + "=", drawn.sums, drawn.sums};
  }

  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  bool has_demonstrations() const override { return true; }

  Reward reward(const Problem& problem, std::string_view reply, bool ended) const override {
    const size_t length = count_ * width_;
    bool format = ended && reply.size() == length;
    for (size_t at = 0; format && at < length; at += width_) format = is_number(reply.substr(at, width_));
    const std::string_view last = std::string_view(problem.answer).substr(length - width_);
    const bool correct = reply.size() >= length && reply.substr(length - width_, width_) == last;
    return {format && correct ? 1.0 : 0.0, {{"correct", correct ? 1.0 : 0.0}, {"format", format ? 1.0 : 0.0}}, !format};
  }

 private:
  /// All of one width, so that text of several numbers can be cut in one way only.
  std::string symbol(uint64_t value) const {
    std::string text = std::to_string(value);
    return text.insert(0, width_ - text.size(), '0');
  }
  bool is_number(std::string_view text) const {
    uint64_t value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return false;
      value = 10 * value + static_cast<uint64_t>(c - '0');
    }
    return value < base_;
  }

  size_t count_;
  uint64_t base_;
  size_t width_;  // digits of a symbol
};

[[maybe_unused]] const bool registered =
    register_task({"running_sum", "running sums of numbers modulo a base, one symbol a number (generated)", options(),
                   [](const Options& given) -> std::unique_ptr<Task> {
                     return std::make_unique<RunningSum>(OptionValues("running_sum", options(), given));
                   }});

}  // namespace

}  // namespace motley::envs
