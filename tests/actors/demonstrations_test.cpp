// Demonstrations of agents for the warm start: played on threads, ahead of the training.
#include "actors/demonstrations.h"

#include <atomic>
#include <mutex>

#include "actors/warmstart.h"
#include "envs/interaction.h"
#include "tests/actors/tiny_run.h"

using namespace motley;
using namespace motley::actors;

namespace {

using namespace std::chrono_literals;
constexpr auto kNeverStop = [] { return false; };

/// Problem n reads "1" n times, draws "2" and the end token, and takes a while that is another one every time.
class PlayedTask final : public envs::Task {
 public:
  struct Plays {
    std::atomic<int> begun{0}, failing{-1};  // the number whose play throws
    std::atomic<bool> hangs{false};
    std::mutex mutex{};
    std::vector<std::string> prompts{};
  };
  explicit PlayedTask(Plays& plays) : plays_(plays) {}
  std::vector<std::string> symbols() const override { return {"1", "2"}; }
  envs::Problem problem(uint64_t, uint64_t index, bool) const override {
    return {std::string(1 + index % 40, '1'), std::to_string(index), "2", {}};
  }
  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  envs::Reward reward(const envs::Problem&, std::string_view, bool) const override { return {}; }
  bool has_demonstrations() const override { return true; }
  bool interacts() const override { return true; }
  envs::InteractionExample demonstrate(const envs::Problem& problem, const envs::Tokenizer& tokenizer,
                                       const envs::InteractionLimits& limits) const override {
    const int begun = plays_.begun++;
    if (std::stoi(problem.answer) == plays_.failing) throw envs::TaskError("problem " + problem.answer + " is broken");
    std::this_thread::sleep_for(std::chrono::microseconds(begun * 7919 % 400));
    while (plays_.hangs) std::this_thread::sleep_for(1ms);
    CHECK(limits.tokens == 64);
    CHECK(limits.reply_tokens == 4);
    envs::InteractionExample example{tokenizer.encode(problem.prompt), {}};
    example.drawn.assign(example.tokens.size(), 0);
    example.tokens.insert(example.tokens.end(), {tokenizer.encode("2")[0], tokenizer.eos()});
    example.drawn.resize(example.tokens.size(), 1);
    const std::lock_guard lock(plays_.mutex);
    plays_.prompts.push_back(problem.prompt);
    return example;
  }

 private:
  Plays& plays_;
};

struct Setting {
  PlayedTask::Plays plays;
  TemporaryFolder folder;
  envs::TaskMix tasks;
  envs::Tokenizer tokenizer;
  TransformerConfig config;
  Experiment experiment = tiny_experiment(true);

  Setting() : tasks(mix(plays)), tokenizer(tasks.tokenizer()) {
    experiment.run.dir = folder.path().string();
    experiment.warmstart = {.steps = 12, .batch = 4, .lr = 1e-2, .demonstrations = 8};
    config = experiment.model.config;
    config.vocabulary = tokenizer.size();
    config = config.resolved();
  }
  static envs::TaskMix mix(PlayedTask::Plays& plays) {
    std::vector<envs::TaskMix::Entry> entries;
    entries.push_back({"played", std::make_unique<PlayedTask>(plays), 1.0});
    return envs::TaskMix(std::move(entries), 3);
  }
  Demonstrations demonstrations() const { return {experiment, tasks, tokenizer, config.max_positions}; }
  struct Result {
    bool cached = false;
    std::vector<double> losses{};
    std::map<std::string, uint64_t> weights{};
  };
  Result warm_start(const Demonstrations::Stop& stop = kNeverStop) const {
    Result result;
    Parameters parameters = Parameters::initialize(config, 1);
    result.cached = actors::warm_start(
        experiment, tasks, tokenizer, config, parameters,
        [&](int64_t, int64_t, double loss) { result.losses.push_back(loss); }, stop);
    result.weights = parameters.fingerprints();
    return result;
  }
};

/// How many 1s each reads.
std::vector<size_t> lengths(Demonstrations& demonstrations, size_t count) {
  std::vector<size_t> read;
  for (size_t i = 0; i < count; ++i) read.push_back(demonstrations.next(kNeverStop)->tokens.size() - 2);
  return read;
}

}  // namespace

TEST_CASE("agents' demonstrations are played once each and come again in shuffled orders") {
  Setting setting;
  Demonstrations demonstrations = setting.demonstrations();
  const auto first = demonstrations.next(kNeverStop);
  CHECK(first->tokens == std::vector<int32_t>{0, 1, setting.tokenizer.eos()});
  CHECK(first->loss_mask == std::vector<uint8_t>{0, 1, 1});
  CHECK(lengths(demonstrations, 7) == std::vector<size_t>{2, 3, 4, 5, 6, 7, 8});
  const std::vector<size_t> second = lengths(demonstrations, 8), third = lengths(demonstrations, 8);
  CHECK(second != third);
  for (auto round : {second, third}) {
    std::sort(round.begin(), round.end());
    CHECK(round == std::vector<size_t>{1, 2, 3, 4, 5, 6, 7, 8});
  }
  CHECK(setting.plays.begun == 8);
}

TEST_CASE("without a limit every demonstration is new, and few are played ahead of need") {
  Setting setting;
  setting.experiment.warmstart.demonstrations = 0;
  setting.experiment.warmstart.steps = 100000;
  Demonstrations demonstrations = setting.demonstrations();
  CHECK(lengths(demonstrations, 40).back() == 40);
  std::this_thread::sleep_for(60ms);
  CHECK(setting.plays.begun <= 40 + 256 + 4);
}

TEST_CASE("a warm start on played demonstrations learns, whatever their timing, and is cached") {
  Setting setting;
  const Setting::Result first = setting.warm_start();
  REQUIRE(first.losses.size() == 12);
  CHECK(first.losses.back() < 0.8 * first.losses.front());
  CHECK(setting.plays.begun == 8);
  setting.experiment.warmstart.cache = false;
  CHECK(setting.warm_start().weights == first.weights);
  setting.experiment.warmstart.cache = true;
  CHECK(setting.warm_start().cached);
  CHECK(setting.warm_start().weights == first.weights);
  setting.experiment.warmstart.demonstrations = 7;
  CHECK_FALSE(setting.warm_start().cached);
}

TEST_CASE("the identity of played demonstrations looks at their tokens and at problems beyond those played for it") {
  Setting setting;
  setting.experiment.warmstart.demonstrations = 30;
  const auto identity = [&] { return *setting.demonstrations().identity(kNeverStop); };
  const std::string text = identity();
  CHECK(text == identity());
  CHECK(text.find("0,0,1,4;0011\n") != std::string::npos);
  CHECK(text.find(std::string(30, '1') + "\x1f" + "29\x1f" + "2\n") != std::string::npos);
}

TEST_CASE("a demonstration that cannot be played is named, and the others do not hide it") {
  Setting setting;
  setting.plays.failing = 5;
  CHECK_THROWS_WITH(setting.warm_start(), "problem 5 is broken");
}

TEST_CASE("a warm start that waits for a demonstration heeds a stop") {
  Setting setting;
  setting.plays.hangs = true;
  std::atomic<int> asked{0};
  const auto stop = [&] {
    if (++asked < 3) return false;
    setting.plays.hangs = false;  // so that it can end at all
    return true;
  };
  CHECK_FALSE(setting.warm_start(stop).cached);
  CHECK(std::filesystem::is_empty(setting.folder.path()));
}
