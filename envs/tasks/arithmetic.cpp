// arithmetic: sums, differences and products of whole numbers, generated without end.
#include <algorithm>
#include <array>
#include <string>

#include "envs/held_out.h"
#include "envs/options.h"

namespace motley::envs {

namespace {

const std::vector<Option>& options() {
  static const std::vector<Option> table{
      {.name = "digits", .help = "most digits of an operand", .default_value = "2", .minimum = 1, .maximum = 9},
      {.name = "operations",
       .help = "operations that occur, equally often",
       .kind = Option::Kind::text,
       .default_value = "+",
       .allowed = {"+", "-", "*", "+-", "+-*"}},
      {.name = "padded",
       .help = "operands and answers have leading zeros up to a fixed width",
       .kind = Option::Kind::boolean,
       .default_value = "false"},
      {.name = "reversed",
       .help = "the answer's lowest digit comes first, which makes carries easy to learn",
       .kind = Option::Kind::boolean,
       .default_value = "false"},
      {.name = "run_on",
       .help = "share of demonstrations that go on with stray digits after the answer: a habit for the reward to cure",
       .kind = Option::Kind::number,
       .default_value = "0",
       .minimum = 0,
       .maximum = 1},
      {.name = "questions",
       .help = "of an episode, one a turn: each is asked once the reply before it has ended",
       .default_value = "1",
       .minimum = 1,
       .maximum = 64},
  };
  return table;
}

struct Operation {
  int64_t left = 0, right = 0;
  char sign = '+';
  /// a+b and b+a are one problem: neither tells the other's answer to the held-out set.
  std::string identity() const {
    const bool swap = sign != '-' && left > right;
    return std::to_string(swap ? right : left) + sign + std::to_string(swap ? left : right);
  }
  int64_t result() const { return sign == '+' ? left + right : sign == '-' ? left - right : left * right; }
};

class Arithmetic final : public Task {
 public:
  explicit Arithmetic(const OptionValues& values)
      : digits_(static_cast<size_t>(values.integer("digits"))),
        operations_(values.text("operations")),
        padded_(values.boolean("padded")),
        reversed_(values.boolean("reversed")),
        run_on_(values.number("run_on")),
        questions_(static_cast<uint64_t>(values.integer("questions"))) {
    for (size_t i = 0; i < digits_; ++i) bound_ *= 10;
    const bool products = operations_.find('*') != std::string::npos;
    answer_digits_ = products ? 2 * digits_ : operations_ == "-" ? digits_ : digits_ + 1;
    for (const bool held_out : {false, true}) problem(0, 0, held_out);
  }

  std::vector<std::string> symbols() const override {
    return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "+", "-", "*", "="};
  }

  Problem problem(uint64_t seed, uint64_t index, bool held_out) const override {
    constexpr uint64_t kQuestion = 0x7175657374696f6eull;  // further questions are drawn from streams of their own
    Problem first = question(seed, index, held_out);
    for (uint64_t k = 1; k < questions_; ++k)
      first.more.push_back(question(seed, kernels::mix(kernels::mix(index, kQuestion), k), held_out));
    return first;
  }

  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  bool has_demonstrations() const override { return true; }

  Reward reward(const Problem& problem, std::string_view reply, bool ended) const override {
    const std::string_view digits = reply.starts_with('-') ? reply.substr(1) : reply;
    const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
    const bool format = ended && number, correct = reply == problem.answer;
    return {format && correct ? 1.0 : 0.0, {{"correct", correct ? 1.0 : 0.0}, {"format", format ? 1.0 : 0.0}}, !format};
  }

 private:
  Problem question(uint64_t seed, uint64_t index, bool held_out) const {
    const Operation operation = draw_problem(seed, index, held_out, [&](kernels::RandomStream& stream) {
      Operation drawn;
      drawn.left = static_cast<int64_t>(stream.below(bound_));
      drawn.right = static_cast<int64_t>(stream.below(bound_));
      drawn.sign = operations_[stream.below(operations_.size())];
      return drawn;
    });
    const int64_t result = operation.result();
    std::string answer = written(result < 0 ? -result : result, answer_digits_);
    if (reversed_) std::reverse(answer.begin(), answer.end());
    if (result < 0) answer.insert(0, "-");
    const std::string prompt =
        written(operation.left, digits_) + operation.sign + written(operation.right, digits_) + "=";
    return {prompt, answer, demonstration(answer, seed, index)};
  }
  std::string demonstration(std::string text, uint64_t seed, uint64_t index) const {
    constexpr uint64_t kRunOn = 0x72756e6f6eull;  // a stream apart from that of the problem itself
    kernels::RandomStream stream({seed, kernels::Purpose::data, kernels::mix(index, kRunOn), 0});
    if (stream.uniform() >= run_on_) return text;
    for (uint64_t stray = 1 + stream.below(2); stray > 0; --stray) text += static_cast<char>('0' + stream.below(10));
    return text;
  }
  std::string written(int64_t value, size_t width) const {
    std::string text = std::to_string(value);
    if (padded_ && text.size() < width) text.insert(0, width - text.size(), '0');
    return text;
  }

  size_t digits_, answer_digits_ = 0;
  std::string operations_;
  bool padded_, reversed_;
  double run_on_;
  uint64_t questions_;
  uint64_t bound_ = 1;  // operands are below it
};

[[maybe_unused]] const bool registered =
    register_task({"arithmetic", "sums, differences and products of whole numbers (generated)", options(),
                   [](const Options& given) -> std::unique_ptr<Task> {
                     return std::make_unique<Arithmetic>(OptionValues("arithmetic", options(), given));
                   }});

}  // namespace

}  // namespace motley::envs
