#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <thread>

#include "envs/environment.h"
#include "envs/repository/generate.h"
#include "envs/schedule.h"
#include "envs/shuffle.h"

using namespace motley::envs;
using Catch::Matchers::Contains;

namespace {

/// A task whose prompts say which problem they are.
class Numbered final : public Task {
 public:
  using Sets = std::map<std::string, std::vector<uint64_t>>;
  Numbered(std::optional<uint64_t> training, std::optional<uint64_t> held_out, Sets sets = {})
      : sizes_{training, held_out}, sets_(std::move(sets)) {}
  std::vector<std::string> symbols() const override { return {"0", "1", "a"}; }
  Problem problem(uint64_t seed, uint64_t index, bool held_out) const override {
    return {std::to_string(index) + (held_out ? "h" : "t"), std::to_string(seed), ""};
  }
  std::optional<uint64_t> epoch_size(bool held_out) const override { return sizes_[held_out]; }
  Reward reward(const Problem&, std::string_view, bool) const override { return {}; }
  Sets held_out_sets() const override { return sets_; }
  bool has_demonstrations() const override { return false; }

 private:
  std::optional<uint64_t> sizes_[2];
  Sets sets_;
};

TaskMix::Entry entry(const std::string& name, double weight, std::optional<uint64_t> training = {},
                     std::optional<uint64_t> held_out = {}) {
  return {name, std::make_unique<Numbered>(training, held_out), weight};
}

template <typename... Entries>
TaskMix mix_of(uint64_t seed, Entries... entries) {
  std::vector<TaskMix::Entry> list;
  (list.push_back(std::move(entries)), ...);
  return TaskMix(std::move(list), seed);
}

std::vector<uint64_t> epoch_order(const TaskMix& mix, uint64_t size, uint64_t epoch) {
  std::vector<uint64_t> order;
  for (uint64_t n = epoch * size; n < (epoch + 1) * size; ++n) {
    const TaskMix::Pick pick = mix.training(n);
    CHECK(pick.epoch == epoch);
    CHECK(pick.problem.prompt == std::to_string(pick.index) + "t");
    order.push_back(pick.index);
  }
  return order;
}

}  // namespace

TEST_CASE("a schedule keeps every share within one pick after every number of picks") {
  const std::vector<std::vector<double>> mixes{{1, 1},
                                               {3, 1},
                                               {1, 2, 3, 4, 5},
                                               {0.7, 0.2, 0.1},
                                               {1.0 / 3, 1.0 / 7, std::sqrt(2.0)},
                                               {1000, 1, 1},
                                               {100, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                               {1e300, 3e300},
                                               {5e-324, 1e-323}};
  for (const auto& weights : mixes) {
    long double sum = 0;
    for (const double weight : weights) sum += weight;
    const Schedule schedule(weights);
    std::vector<uint64_t> counts(weights.size());
    double worst = 0;
    for (uint64_t n = 0; n < 5000; ++n) {
      const auto [chosen, earlier] = schedule.at(n);
      REQUIRE(chosen < weights.size());
      REQUIRE(earlier == counts[chosen]);
      ++counts[chosen];
      for (size_t i = 0; i < weights.size(); ++i) {
        const long double quota = static_cast<long double>(n + 1) * weights[i] / sum;
        worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(counts[i]) - quota)));
      }
    }
    CAPTURE(weights);
    CHECK(worst < 1 + 1e-9);  // a quota that is whole but for rounding may be passed by one
    CHECK(schedule.counts(5000) == counts);
  }
}

TEST_CASE("a schedule is a pure function of n") {
  const Schedule forward({2, 3, 5}), backward({2, 3, 5});
  std::vector<size_t> picks;
  for (uint64_t n = 0; n < 3000; ++n) picks.push_back(forward.at(n).entry);
  for (uint64_t n = 3000; n-- > 0;) REQUIRE(backward.at(n).entry == picks[n]);
  CHECK(std::vector<size_t>(picks.begin(), picks.begin() + 10) == std::vector<size_t>{2, 1, 2, 0, 2, 1, 2, 0, 1, 2});
  CHECK(Schedule({0.3}).at(uint64_t{1} << 60).earlier == uint64_t{1} << 60);
  const Schedule extreme({1e-300, 1e300});  // the share of the first is below anything that is ever picked
  for (uint64_t n = 0; n < 100; ++n) CHECK(extreme.at(n).entry == 1);
}

TEST_CASE("threads that ask one schedule get the same picks") {
  const Schedule shared({1, 2, 4}), alone({1, 2, 4});
  std::vector<std::vector<size_t>> picks(4);
  std::vector<std::thread> threads;
  for (auto& mine : picks) {
    threads.emplace_back([&] {
      for (uint64_t n = 0; n < 2500; ++n) mine.push_back(shared.at(n).entry);
    });
  }
  for (auto& thread : threads) thread.join();
  for (uint64_t n = 0; n < 2500; ++n) {
    for (const auto& mine : picks) REQUIRE(mine[n] == alone.at(n).entry);
  }
}

TEST_CASE("a shuffle takes every place once, whatever the size") {
  for (const uint64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 255, 256, 257, 1000}) {
    std::set<uint64_t> places;
    for (uint64_t i = 0; i < size; ++i) places.insert(shuffled(i, size, 42));
    CHECK(places.size() == size);
    CHECK(*places.rbegin() == size - 1);
  }
  CHECK(shuffled(UINT64_MAX - 1, UINT64_MAX, 7) < UINT64_MAX);
  std::map<std::vector<uint64_t>, int> orders;
  for (uint64_t key = 0; key < 6000; ++key) ++orders[{shuffled(0, 3, key), shuffled(1, 3, key), shuffled(2, 3, key)}];
  CHECK(orders.size() == 6);
  // 1000 expected each, standard deviation 29 for a uniform choice; a small network is not exactly uniform.
  for (const auto& [order, count] : orders) CHECK(std::abs(count - 1000) < 250);
}

TEST_CASE("three prompts and ten updates: each epoch has all of them once") {
  const TaskMix mix = mix_of(5, entry("a", 1, 3, 1));
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t epoch = 0; epoch < 10; ++epoch) {
    const auto order = epoch_order(mix, 3, epoch);
    CHECK(std::set<uint64_t>(order.begin(), order.end()) == std::set<uint64_t>{0, 1, 2});
    orders.insert(order);
  }
  CHECK(orders.size() > 1);
}

TEST_CASE("an epoch of a thousand is shuffled by seed and epoch") {
  const TaskMix mix = mix_of(5, entry("a", 1, 1000, 1)), again = mix_of(5, entry("a", 1, 1000, 1)),
                other = mix_of(6, entry("a", 1, 1000, 1));
  const auto order = epoch_order(mix, 1000, 0);
  CHECK(std::set<uint64_t>(order.begin(), order.end()).size() == 1000);
  CHECK(order == epoch_order(again, 1000, 0));
  CHECK(order != epoch_order(mix, 1000, 1));
  CHECK(order != epoch_order(other, 1000, 0));
}

TEST_CASE("entries of a mix count for themselves") {
  const TaskMix mix = mix_of(1, entry("a", 3), entry("b", 1, 2, 2));
  std::vector<uint64_t> seen(2);
  std::set<std::string> seeds;
  for (uint64_t n = 0; n < 400; ++n) {
    const TaskMix::Pick pick = mix.training(n);
    seeds.insert(pick.problem.answer);
    if (pick.entry == 0) {
      CHECK(pick.epoch == 0);
      CHECK(pick.index == seen[0]);
    } else {
      CHECK(pick.epoch == seen[1] / 2);
      CHECK(pick.index < 2);
    }
    ++seen[pick.entry];
  }
  CHECK(seen == std::vector<uint64_t>{300, 100});
  CHECK(seeds.size() == 2);  // one task used twice does not give the same problems twice
}

TEST_CASE("held-out problems come in order, the same for every seed") {
  const TaskMix mix = mix_of(1, entry("a", 1, 50, 4), entry("b", 1)),
                other = mix_of(2, entry("a", 1, 50, 4), entry("b", 1));
  for (uint64_t n = 0; n < 20; ++n) {
    const TaskMix::Pick pick = mix.held_out(n);
    CHECK(pick.entry == n % 2);
    CHECK(pick.index == (pick.entry == 0 ? n / 2 % 4 : n / 2));
    CHECK(pick.problem.prompt == std::to_string(pick.index) + "h");
    CHECK(pick.problem.answer == other.held_out(n).problem.answer);
  }
}

TEST_CASE("the held-out size stops before a finite set comes again") {
  CHECK(mix_of(1, entry("a", 1)).held_out_size(100) == 100);
  CHECK(mix_of(1, entry("a", 1)).held_out_size(UINT64_MAX) == UINT64_MAX);
  CHECK(mix_of(1, entry("a", 1, 9, 7)).held_out_size(100) == 7);
  CHECK(mix_of(1, entry("a", 1, 9, 7)).held_out_size(5) == 5);
  CHECK(mix_of(1, entry("a", 1, 9, 7)).held_out_size(0) == 0);
  CHECK(mix_of(1, entry("a", 1, 9, 7), entry("b", 1)).held_out_size(100) == 14);
  CHECK(mix_of(1, entry("a", 1, 9, 7), entry("b", 1, 9, 3)).held_out_size(UINT64_MAX) == 7);
  const TaskMix mix = mix_of(1, entry("a", 0.3, 9, 11), entry("b", 1, 9, 30), entry("c", 0.01, 9, 1));
  const uint64_t size = mix.held_out_size(1000);
  for (uint64_t n = 0; n < size; ++n) CHECK(mix.held_out(n).epoch == 0);
  CHECK(mix.held_out(size).epoch == 1);
}

TEST_CASE("held-out sets of a mix: everything, and the problems that tasks name, of all tasks in turn") {
  std::vector<TaskMix::Entry> entries;
  entries.push_back({"a", std::make_unique<Numbered>(9, 9, Numbered::Sets{{"hard", {2, 5, 7}}, {"odd", {1}}}), 1.0});
  entries.push_back({"b", std::make_unique<Numbered>(9, 4, Numbered::Sets{{"hard", {3}}}), 5.0});
  entries.push_back(entry("c", 1));
  const TaskMix mix(std::move(entries), 1);
  CHECK(mix.held_out_sets() == std::vector<std::string>{"full", "hard", "odd"});
  const auto names = [&](const std::string& set, uint64_t wanted) {
    std::string all;
    for (const TaskMix::Pick& pick : mix.held_out_set(set, wanted)) {
      CHECK(pick.epoch == 0);
      CHECK(pick.problem.prompt == std::to_string(pick.index) + "h");
      all += mix.entries()[pick.entry].name + std::to_string(pick.index) + " ";
    }
    return all;
  };
  CHECK(names("hard", 100) == "a2 b3 a5 a7 ");
  CHECK(names("hard", 3) == "a2 b3 a5 ");
  CHECK(names("odd", 100) == "a1 ");
  const auto full = mix.held_out_set("full", 5);
  REQUIRE(full.size() == 5);
  for (uint64_t n = 0; n < 5; ++n) CHECK(full[n].problem.prompt == mix.held_out(n).problem.prompt);
  CHECK_THROWS_WITH(mix.held_out_set("easy", 5), Contains("named easy; there are: full, hard, odd"));
}

TEST_CASE("what a tokenizer lacks for a mix: symbols, bytes, special tokens") {
  const auto mix_with = [](const Options& options) {
    std::vector<TaskMix::Entry> entries;
    entries.push_back(entry("a", 1));
    if (!options.empty()) entries.push_back({"repository", find_task("repository")->make(options), 1});
    return TaskMix(std::move(entries), 0);
  };
  const TaskMix plain = mix_with({}), agent = mix_with({{"count", "10"}, {"format", "chatml"}});
  CHECK(plain.lacking(Tokenizer({"a", "x", "1", "0"})).empty());
  CHECK(plain.lacking(Tokenizer({"a", "1"})) == "symbol \"0\"");
  CHECK(agent.lacking(agent.tokenizer()).empty());
  const std::vector<std::string> markers = agent.tokenizer().markers();
  std::vector<std::string> symbols = task_symbols();
  symbols.insert(symbols.end(), {"0", "1", "a"});
  CHECK(agent.lacking(Tokenizer(symbols, true, markers)).empty());
  CHECK(agent.lacking(Tokenizer(symbols, false, markers)) == "symbol for every byte");
  CHECK(agent.lacking(Tokenizer({"0", "1", "a"}, true, markers)) == "symbol \"rename \"");
  CHECK(agent.lacking(Tokenizer(symbols, true, {"<|im_start|>"})) == "special token <tool_call>");
}

TEST_CASE("a mix that makes no sense is refused") {
  CHECK_THROWS_AS(TaskMix({}, 0), TaskError);
  for (const double weight : {0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    CHECK_THROWS_AS(mix_of(0, entry("a", weight)), TaskError);
  }
  CHECK_THROWS_AS(mix_of(0, entry("a", 1e308), entry("b", 1e308)), TaskError);
  CHECK_THROWS_WITH(mix_of(0, entry("a", 1), entry("a", 1)), Contains("named a"));
  CHECK_THROWS_WITH(mix_of(0, entry("a", 1, 0, 1)), Contains("no training problems"));
  std::vector<TaskMix::Entry> benchmark;
  benchmark.push_back(entry("a", 1, 0, 1));
  CHECK(TaskMix(std::move(benchmark), 0, false).held_out_set("full", 5).size() == 1);
  CHECK_THROWS_WITH(mix_of(0, entry("a", 1, 1, 0)), Contains("no held-out problems"));
}

TEST_CASE("the tokenizer of a mix has every symbol once, in order") {
  std::vector<TaskMix::Entry> entries;
  entries.push_back(entry("a", 1));
  entries.push_back({"arithmetic", find_task("arithmetic")->make({}), 1});
  const auto symbols = TaskMix(std::move(entries), 0).tokenizer().symbols();
  CHECK(symbols == std::vector<std::string>{"0", "1", "a", "2", "3", "4", "5", "6", "7", "8", "9", "+", "-", "*", "="});
}
