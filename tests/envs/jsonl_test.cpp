#include "envs/jsonl.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "envs/answers.h"
#include "tests/temporary_folder.h"

using namespace motley::envs;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Task> make(const Options& options) { return find_task("jsonl")->make(options); }

std::string pair(const std::string& prompt, const std::string& answer) {
  return nlohmann::json{{"prompt", prompt}, {"answer", answer}}.dump() + "\n";
}

std::string sums(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += pair(std::to_string(i) + "+1=", std::to_string(i + 1));
  return text;
}

double value(const Task& task, const std::string& answer, std::string_view reply, bool ended = true) {
  const Reward reward = task.reward({"p", answer, ""}, reply, ended);
  CHECK((reward.value == 0 || reward.value == 1));
  CHECK(reward.parts.size() == 2);
  CHECK(reward.format_error == (reward.parts.at("format") == 0));
  return reward.value;
}

}  // namespace

TEST_CASE("jsonl: a tenth of the prompts is held out and never trained on") {
  const motley::TemporaryFolder folder;
  const auto task = make({{"path", folder.write("a.jsonl", sums(10000))}});
  const uint64_t training = *task->epoch_size(false), held_out = *task->epoch_size(true);
  CHECK(training + held_out == 10000);
  CHECK(std::abs(static_cast<double>(held_out) - 1000) < 150);  // five standard deviations of 30
  std::set<std::string> prompts;
  for (uint64_t i = 0; i < training; ++i) prompts.insert(task->problem(0, i, false).prompt);
  for (uint64_t i = 0; i < held_out; ++i) prompts.insert(task->problem(0, i, true).prompt);
  CHECK(prompts.size() == 10000);
  CHECK(task->problem(0, 0, false).prompt == task->problem(1, 0, false).prompt);
  CHECK(task->problem(0, 0, false).demonstration == task->problem(0, 0, false).answer);
  CHECK_THROWS_AS(task->problem(0, training, false), std::out_of_range);
}

TEST_CASE("jsonl: small files") {
  const motley::TemporaryFolder folder;
  for (int count = 2; count < 30; ++count) {
    const auto task = make({{"path", folder.write("a.jsonl", sums(count))}});
    CHECK(*task->epoch_size(false) >= 1);
    CHECK(*task->epoch_size(true) >= 1);
    CHECK(*task->epoch_size(false) + *task->epoch_size(true) == static_cast<uint64_t>(count));
  }
  const std::string one = folder.write("one.jsonl", sums(1));
  CHECK_THROWS_WITH(make({{"path", one}}), Contains("name a held_out file"));
  const std::string other = folder.write("other.jsonl", pair("x", "y"));
  const auto task = make({{"path", one}, {"held_out", other}});
  CHECK(*task->epoch_size(false) == 1);
  CHECK(task->problem(0, 0, true).prompt == "x");
  CHECK(task->symbols() == std::vector<std::string>{"+", "0", "1", "=", "x", "y"});
  CHECK_THROWS_WITH(make({{"path", one}, {"held_out", folder.write("b.jsonl", pair("x", "y") + sums(1))}}),
                    Contains("b.jsonl:2: ") && Contains("also a training prompt") && Contains("one.jsonl:1"));
}

TEST_CASE("jsonl: a prompt that stands twice stays on one side") {
  const motley::TemporaryFolder folder;
  const auto task = make({{"path", folder.write("a.jsonl", sums(50) + sums(50))}});
  std::set<std::string> training;
  for (uint64_t i = 0; i < *task->epoch_size(false); ++i) training.insert(task->problem(0, i, false).prompt);
  for (uint64_t i = 0; i < *task->epoch_size(true); ++i)
    CHECK_FALSE(training.contains(task->problem(0, i, true).prompt));
  CHECK(*task->epoch_size(false) + *task->epoch_size(true) == 100);
}

TEST_CASE("jsonl: symbols are the characters of prompts and answers, sorted") {
  const motley::TemporaryFolder folder;
  const auto task = make({{"path", folder.write("a.jsonl", pair("bé", "日") + pair("a\n", "b"))}});
  CHECK(task->symbols() == std::vector<std::string>{"\n", "a", "b", "é", "日"});
}

TEST_CASE("jsonl: a bad line is named by file and line") {
  const motley::TemporaryFolder folder;
  const auto refused = [&](const std::string& line, const std::string& reason, const std::string& answer = "exact") {
    CAPTURE(line);
    const std::string path = folder.write("bad.jsonl", sums(2) + "\n" + line + "\n" + sums(1));
    CHECK_THROWS_AS(make({{"path", path}, {"answer", answer}}), TaskError);
    CHECK_THROWS_WITH(make({{"path", path}, {"answer", answer}}), Contains(path + ":4: ") && Contains(reason));
  };
  refused("{\"prompt\": \"a\", ", "not JSON");
  refused("{\"prompt\": \"a\"} x", "not JSON");
  refused("{\"prompt\": \"\xff\", \"answer\": \"1\"}", "not JSON");
  refused("{'prompt': 'a'}", "not JSON");
  refused(std::string(100000, '['), "not JSON");
  refused("[1]", "must be an object, but is array");
  refused("{\"answer\": \"1\"}", "\"prompt\" is missing");
  refused("{\"prompt\": \"1\"}", "\"answer\" is missing");
  refused("{\"prompt\": 1, \"answer\": \"1\"}", "\"prompt\" must be text, but is number");
  refused("{\"prompt\": \"1\", \"answer\": 1}", "\"answer\" must be text, but is number");
  refused("{\"prompt\": \"1\", \"answer\": null}", "\"answer\" must be text or a number, but is null", "number");
  refused("{\"prompt\": \"\", \"answer\": \"1\"}", "\"prompt\" is empty");
  refused("{\"prompt\": \"1\", \"answer\": \"\"}", "\"answer\" is empty");
  refused(R"({"prompt": "1+1=", "answer": "3"})", "the prompt of line 2 with another answer");
  refused(R"({"prompt": "1", "answer": "one"})", "\"one\" is not a number", "number");
  refused(R"({"prompt": "1", "answer": "a("})", "not a regular expression", "regex");
  refused(R"({"prompt": "1", "answer": "(a)\\1"})", "not a regular expression", "regex");
  refused(R"({"prompt": "1", "answer": "((a{200}){200}){200}"})", "repeat counts", "regex");
  refused(pair("1", std::string(5000, 'a')), "longer than 4096 bytes");
}

TEST_CASE("jsonl: files that cannot be read") {
  const motley::TemporaryFolder folder;
  CHECK_THROWS_WITH(make({}), Contains("option path"));
  CHECK_THROWS_WITH(make({{"path", folder.path().string() + "/none.jsonl"}}), Contains("none.jsonl: cannot be opened"));
  CHECK_THROWS_WITH(make({{"path", folder.path().string()}}), Contains("is no regular file but a folder"));
  CHECK_THROWS_WITH(make({{"path", folder.write("e.jsonl", "\n \r\n")}}), Contains("e.jsonl: holds no problem"));
  CHECK_THROWS_AS(make({{"path", folder.write("a.jsonl", sums(3))}, {"answer", "fuzzy"}}), TaskError);
}

TEST_CASE("jsonl: Windows line ends, a byte order mark, further keys, no last line end") {
  const motley::TemporaryFolder folder;
  const auto lines = read_jsonl(folder.write(
      "a.jsonl",
      "\xEF\xBB\xBF{\"prompt\":\"a\",\"answer\":\"b\",\"id\":[1]}\r\n\r\n{\"prompt\":\"c\",\"answer\":\"d\"}"));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].prompt == "a");
  CHECK(lines[1].answer == "d");
  CHECK(lines[1].number == 3);
}

TEST_CASE("jsonl: exact answers") {
  const motley::TemporaryFolder folder;
  const auto task = make({{"path", folder.write("a.jsonl", sums(20))}});
  CHECK(task->has_demonstrations());
  CHECK(value(*task, "12", "12") == 1);
  CHECK(value(*task, "12", "12", false) == 0);
  CHECK(value(*task, "12", "12 ") == 0);
  CHECK(value(*task, "12", "12.0") == 0);
  CHECK(value(*task, "12", "") == 0);
  CHECK(value(*task, "12", std::string(10'000'000, '1')) == 0);
  CHECK(value(*task, "12", "\xff") == 0);
  CHECK(task->reward({"p", "12", ""}, "\xff", true).format_error);
}

TEST_CASE("jsonl: numbers") {
  const motley::TemporaryFolder folder;
  const auto task = make({{"path", folder.write("a.jsonl", R"({"prompt": "a", "answer": 72})"
                                                           "\n"
                                                           R"({"prompt": "b", "answer": "1,234"})")},
                          {"answer", "number"}});
  CHECK(value(*task, "1,234", "1234") == 1);
  CHECK(value(*task, "1234", " 1,234.0\n") == 1);
  CHECK(value(*task, "1e3", "1000.0000005") == 1);
  CHECK(value(*task, "1e3", "1000.00001") == 0);
  CHECK(value(*task, "0", "-0.0") == 1);
  CHECK(value(*task, "0", "1e-300") == 0);
  CHECK(value(*task, "1e308", "-1e308") == 0);
  CHECK(value(*task, "5", "5", false) == 0);
  for (const char* bad : {"",    " ",   "five", "nan", "inf", "0x10", "1,23", "12,34", ",123", "1,,234", "1e999",
                          "--5", "+-5", "5 5",  ".",   "-",   "e5",   "5e",   "1/2",   "\xff", "1,234,"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_number(bad));
    CHECK(task->reward({"p", "5", ""}, bad, true).format_error);
  }
  CHECK_FALSE(parse_number(std::string(1'000'000, '1')));
  CHECK(parse_number("-1,234,567.5e1") == -12345675.0);
  CHECK(parse_number("+.5") == 0.5);
  CHECK(parse_number("5.") == 5.0);
  CHECK(numbers_agree(1, 1 + 5e-10));
  CHECK_FALSE(numbers_agree(1, 1 + 5e-9));
  CHECK_FALSE(numbers_agree(std::nan(""), 1));
}

TEST_CASE("jsonl: regular expressions") {
  const motley::TemporaryFolder folder;
  const auto task =
      make({{"path", folder.write("a.jsonl", pair("a", "x+|y") + pair("b", "[0-9]{2}"))}, {"answer", "regex"}});
  CHECK_FALSE(task->has_demonstrations());
  CHECK(task->problem(0, 0, false).demonstration.empty());
  CHECK(value(*task, "x+|y", "xxx") == 1);
  CHECK(value(*task, "x+|y", "xxy") == 0);
  CHECK(value(*task, "x+|y", "xxx", false) == 0);
  CHECK(value(*task, "[0-9]{2}", "42") == 1);
  CHECK(value(*task, "[0-9]{2}", "421") == 0);
  CHECK(value(*task, "(日|é).", "é😀") == 1);
  CHECK(value(*task, "x*", std::string(4096, 'x')) == 1);
  CHECK(value(*task, "x*", std::string(4097, 'x')) == 0);
  CHECK(value(*task, ".*", "\xff") == 0);
}

TEST_CASE("jsonl: a pattern that would go back for ever is matched in one pass") {
  const std::string row(4096, 'a');
  for (const char* pattern : {"(a+)+b", "(a*)*b", "(a|aa)+b", "(a|a?)+b", "(.*)(.*)(.*)(.*)(.*)b"}) {
    CHECK_FALSE(AnswerPattern(pattern).matches(row));
  }
  CHECK(AnswerPattern("(a|b)*").matches(row));
  CHECK_THROWS_WITH(AnswerPattern("((?=a*(?=a*b))a)*"), Contains("look-ahead"));
  CHECK_THROWS_WITH(AnswerPattern("(?!a)b"), Contains("look-ahead"));
  CHECK(AnswerPattern("\\(?=5[(?=]\\{5000\\}").matches("(=5?{5000}"));
  CHECK_THROWS_AS(AnswerPattern(std::string(1025, '(')), std::invalid_argument);
  CHECK_THROWS_AS(AnswerPattern(std::string(1000, '(')), std::invalid_argument);
}
