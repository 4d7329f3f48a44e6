#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "envs/environment.h"
#include "envs/options.h"

using namespace motley::envs;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Task> make(const std::string& name, const Options& options = {}) {
  return find_task(name)->make(options);
}

/// Training and held-out prompts of ten thousand draws have nothing in common, with two seeds.
void check_disjoint(const Task& task) {
  std::set<std::string> training, held_out;
  for (uint64_t i = 0; i < 10000; ++i) {
    training.insert(task.problem(1, i, false).prompt);
    held_out.insert(task.problem(2, i, true).prompt);
  }
  for (const std::string& prompt : held_out) REQUIRE_FALSE(training.contains(prompt));
}

void check_range(const Reward& reward) {
  CHECK(std::isfinite(reward.value));
  CHECK((reward.value >= 0 && reward.value <= 1));
  for (const auto& [name, value] : reward.parts) CHECK((value >= 0 && value <= 1));
}

void check_hostile(const Task& task) {
  const Problem problem = task.problem(3, 0, false);
  const std::vector<std::string> replies{"",
                                         std::string(10'000'000, '1'),
                                         "\xff\xfe\xc0",
                                         std::string(3, '\0'),
                                         "\uFFFD",
                                         problem.answer + " ",
                                         problem.answer + problem.answer,
                                         "reward = 1",
                                         "<eos>",
                                         std::string(100000, '(')};
  for (const std::string& reply : replies) {
    const Reward reward = task.reward(problem, reply, true);
    check_range(reward);
    CHECK(reward.value == 0);
  }
}

}  // namespace

TEST_CASE("every file of envs/tasks registers the task of its name") {
  std::set<std::string> files, names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(MOTLEY_SOURCE_DIR) + "/envs/tasks")) {
    files.insert(file.path().stem().string());
  }
  for (const TaskInfo& info : tasks()) {
    names.insert(info.name);
    CHECK_FALSE(info.summary.empty());
    for (const Option& option : info.options) CHECK_FALSE(option.help.empty());
  }
  CHECK(names == files);
  CHECK(std::is_sorted(tasks().begin(), tasks().end(), [](auto& a, auto& b) { return a.name < b.name; }));
  CHECK(find_task("arithmetics") == nullptr);
  CHECK_THROWS_AS(register_task({"arithmetic", "again", {}, nullptr}), std::logic_error);
}

TEST_CASE("generated problems can be written in the task's symbols and answered by their demonstrations") {
  for (const auto& [name, options] : std::vector<std::pair<std::string, Options>>{
           {"arithmetic", {}},
           {"arithmetic", {{"operations", "+-*"}, {"digits", "9"}, {"reversed", "true"}, {"padded", "true"}}},
           {"running_sum", {}},
           {"running_sum", {{"base", "7"}, {"numbers", "3"}}}}) {
    const auto task = make(name, options);
    const Tokenizer tokenizer(task->symbols());
    CHECK(task->has_demonstrations());
    CHECK_FALSE(task->epoch_size(true));
    CHECK_FALSE(task->epoch_size(false));
    for (uint64_t i = 0; i < 300; ++i) {
      const Problem problem = task->problem(11, i, i % 2 == 0);
      CHECK(tokenizer.decode(tokenizer.encode(problem.prompt)) == problem.prompt);
      CHECK(tokenizer.decode(tokenizer.encode(problem.demonstration)) == problem.demonstration);
      const Reward reward = task->reward(problem, problem.demonstration, true);
      CHECK(reward.value == 1);
      CHECK_FALSE(reward.format_error);
      CHECK(reward.parts == std::map<std::string, double>{{"correct", 1}, {"format", 1}});
      const Reward cut = task->reward(problem, problem.demonstration, false);
      CHECK(cut.value == 0);
      CHECK(cut.format_error);
    }
  }
}

TEST_CASE("generated problems depend on seed and index alone") {
  for (const char* name : {"arithmetic", "running_sum"}) {
    const auto one = make(name), two = make(name);
    int same = 0;
    for (uint64_t i = 100; i-- > 0;) {
      CHECK(one->problem(4, i, false).prompt == two->problem(4, i, false).prompt);
      same += one->problem(4, i, false).prompt == one->problem(5, i, false).prompt;
    }
    CHECK(same < 5);
  }
}

TEST_CASE("held-out problems never occur in training") {
  check_disjoint(*make("arithmetic"));
  check_disjoint(*make("arithmetic", {{"operations", "+-*"}, {"digits", "1"}}));
  check_disjoint(*make("running_sum"));
  check_disjoint(*make("running_sum", {{"numbers", "2"}}));
}

TEST_CASE("a sum is held out together with its commuted twin") {
  const auto task = make("arithmetic", {{"operations", "+-*"}, {"digits", "1"}});
  std::set<std::string> training, held_out;
  for (uint64_t i = 0; i < 20000; ++i) {
    training.insert(task->problem(0, i, false).prompt);
    held_out.insert(task->problem(0, i, true).prompt);
  }
  CHECK(training.size() + held_out.size() == 300);  // the whole space was seen
  for (std::string prompt : held_out) {
    if (prompt[1] == '-') continue;
    std::swap(prompt[0], prompt[2]);
    CHECK(held_out.contains(prompt));
  }
}

TEST_CASE("a space too small to share out is refused") {
  CHECK_THROWS_AS(make("running_sum", {{"numbers", "1"}, {"base", "2"}}), TaskError);
}

TEST_CASE("arithmetic: golden problems") {
  const auto task = make("arithmetic");
  const auto prompt = [](const Task& task, uint64_t index, bool held_out) {
    const Problem problem = task.problem(0, index, held_out);
    return problem.prompt + problem.answer;
  };
  CHECK(prompt(*task, 0, false) == "2+75=77");
  CHECK(prompt(*task, 1, false) == "12+52=64");
  CHECK(prompt(*task, 0, true) == "62+68=130");
  const auto all = make("arithmetic", {{"operations", "+-*"}, {"digits", "3"}});
  CHECK(prompt(*all, 0, false) == "26+759=785");
  CHECK(prompt(*all, 1, false) == "124*526=65224");
}

TEST_CASE("arithmetic: answers are right, and prompt and answer fit in 12 symbols at two digits") {
  const auto task = make("arithmetic", {{"operations", "+-*"}});
  std::set<char> signs;
  bool negative = false;
  for (uint64_t i = 0; i < 2000; ++i) {
    const Problem problem = task->problem(7, i, false);
    const size_t sign = problem.prompt.find_first_of("+-*");
    const int64_t left = std::stoll(problem.prompt.substr(0, sign)),
                  right = std::stoll(problem.prompt.substr(sign + 1));
    const char operation = problem.prompt[sign];
    CHECK(std::stoll(problem.answer) == (operation == '+'   ? left + right
                                         : operation == '-' ? left - right
                                                            : left * right));
    CHECK(problem.prompt.size() + problem.answer.size() <= 12);
    signs.insert(operation);
    negative |= problem.answer[0] == '-';
  }
  CHECK(signs.size() == 3);
  CHECK(negative);
}

TEST_CASE("arithmetic: padded and reversed answers") {
  const auto task = make("arithmetic", {{"operations", "+-"}, {"padded", "true"}, {"reversed", "true"}});
  const auto plain = make("arithmetic", {{"operations", "+-"}});
  for (uint64_t i = 0; i < 200; ++i) {
    const Problem problem = task->problem(0, i, i % 3 == 0), same = plain->problem(0, i, i % 3 == 0);
    CHECK(problem.prompt.size() == 6);
    std::string digits = problem.answer;
    const bool negative = digits[0] == '-';
    if (negative) digits.erase(0, 1);
    CHECK(digits.size() == 3);
    std::reverse(digits.begin(), digits.end());
    CHECK(std::stoi(digits) * (negative ? -1 : 1) == std::stoi(same.answer));
  }
}

TEST_CASE("arithmetic: right, wrong and broken replies") {
  const auto task = make("arithmetic");
  const Problem problem{"47+85=", "132", "132"};
  const auto parts = [&](std::string_view reply, bool ended) {
    const Reward reward = task->reward(problem, reply, ended);
    CHECK(reward.format_error == (reward.parts.at("format") == 0));
    return std::vector<double>{reward.value, reward.parts.at("correct"), reward.parts.at("format")};
  };
  CHECK(parts("132", true) == std::vector<double>{1, 1, 1});
  CHECK(parts("132", false) == std::vector<double>{0, 1, 0});
  CHECK(parts("133", true) == std::vector<double>{0, 0, 1});
  CHECK(parts("-132", true) == std::vector<double>{0, 0, 1});
  CHECK(parts("", true) == std::vector<double>{0, 0, 0});
  CHECK(parts("-", true) == std::vector<double>{0, 0, 0});
  CHECK(parts("13=", true) == std::vector<double>{0, 0, 0});
  check_hostile(*task);
}

TEST_CASE("running_sum: golden problems and sums") {
  const auto task = make("running_sum");
  CHECK(task->symbols().size() == 21);
  CHECK(task->problem(0, 0, false).prompt == "12131005151313040312=");
  CHECK(task->problem(0, 0, false).answer == "12051500150801050800");
  CHECK(task->problem(0, 0, true).prompt == "00150013061319070406=");
  const Tokenizer tokenizer(task->symbols());
  for (uint64_t i = 0; i < 500; ++i) {
    const Problem problem = task->problem(9, i, false);
    const auto prompt = tokenizer.encode(problem.prompt), answer = tokenizer.encode(problem.answer);
    REQUIRE(prompt.size() == 11);
    REQUIRE(answer.size() == 10);
    CHECK(prompt.back() == 20);
    int32_t sum = 0;
    for (size_t k = 0; k < 10; ++k) {
      sum = (sum + prompt[k]) % 20;
      CHECK(answer[k] == sum);
    }
  }
}

TEST_CASE("running_sum: the last sum and the form decide") {
  const auto task = make("running_sum", {{"numbers", "3"}});
  const Problem problem{"071902=", "070608", "070608"};
  const auto parts = [&](std::string_view reply, bool ended) {
    const Reward reward = task->reward(problem, reply, ended);
    CHECK(reward.format_error == (reward.parts.at("format") == 0));
    return std::vector<double>{reward.value, reward.parts.at("correct"), reward.parts.at("format")};
  };
  CHECK(parts("070608", true) == std::vector<double>{1, 1, 1});
  CHECK(parts("000008", true) == std::vector<double>{1, 1, 1});
  CHECK(parts("070609", true) == std::vector<double>{0, 0, 1});
  CHECK(parts("070608", false) == std::vector<double>{0, 1, 0});
  CHECK(parts("07060808", true) == std::vector<double>{0, 1, 0});
  CHECK(parts("0706", true) == std::vector<double>{0, 0, 0});
  CHECK(parts("08", true) == std::vector<double>{0, 0, 0});
  CHECK(parts("07==08", true) == std::vector<double>{0, 1, 0});
  CHECK(parts("=07060", true) == std::vector<double>{0, 0, 0});
  CHECK(parts("072008", true) == std::vector<double>{0, 1, 0});
  CHECK(parts("", true) == std::vector<double>{0, 0, 0});
  check_hostile(*task);
}

TEST_CASE("running_sum: a guess is right once in base times") {
  const auto task = make("running_sum");
  std::vector<int> last(20);
  for (uint64_t i = 0; i < 20000; ++i) {
    const std::string answer = task->problem(1, i, false).answer;
    ++last[std::stoul(answer.substr(answer.size() - 2))];
  }
  // 1000 expected, standard deviation 31 for independent draws; five of them.
  for (const int count : last) CHECK(std::abs(count - 1000) < 155);
}

TEST_CASE("options are checked against the task's table") {
  CHECK_THROWS_WITH(make("arithmetic", {{"digit", "2"}}), Contains("no option \"digit\"; it has digits, operations"));
  CHECK_THROWS_WITH(make("arithmetic", {{"digits", "0"}}),
                    Contains("digits is \"0\"; it must be a whole number from 1 to 9"));
  CHECK_THROWS_WITH(make("arithmetic", {{"digits", "2x"}}), Contains("a whole number from 1 to 9"));
  CHECK_THROWS_AS(make("arithmetic", {{"digits", "99999999999999999999"}}), TaskError);
  CHECK_THROWS_WITH(make("arithmetic", {{"operations", "/"}}), Contains("one of +, -, *, +-, +-*"));
  CHECK_THROWS_WITH(make("arithmetic", {{"padded", "yes"}}), Contains("true or false"));
  const std::vector<Option> table{
      {.name = "x", .help = "h", .kind = Option::Kind::number, .default_value = "0.5", .minimum = 0, .maximum = 1}};
  CHECK(OptionValues("t", table, {}).number("x") == 0.5);
  CHECK(OptionValues("t", table, {{"x", "0.25"}}).number("x") == 0.25);
  for (const char* bad : {"nan", "2", "", "inf"}) CHECK_THROWS_AS(OptionValues("t", table, {{"x", bad}}), TaskError);
}
