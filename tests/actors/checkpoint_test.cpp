// Checkpoints and recorded batches survive being cut short, and give back the same bits.
#include "actors/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "actors/trajectory_file.h"
#include "tests/temporary_folder.h"

using namespace motley;
using namespace motley::actors;
namespace fs = std::filesystem;

namespace {

TransformerConfig tiny_config(const envs::Tokenizer& tokenizer) {
  TransformerConfig config;
  config.vocabulary = tokenizer.size();
  config.layers = 1;
  config.width = 32;
  config.heads = 2;
  config.kv_heads = 1;
  return config.resolved();
}

const envs::Tokenizer kTokenizer({"0", "1", "+", "="});

algos::Trajectory sample() {
  algos::Trajectory t;
  t.task = "arithmetic";
  t.group = 7;
  t.sampler = "b200";
  t.tokens = {0, 2, 1, 3, 1, 6};
  t.loss_mask = {0, 0, 0, 0, 1, 1};
  t.records.tokens = {1, 6};
  t.records.log_q = {-0.25f, -1e-40f};
  t.records.versions = {3, 4};
  t.records.offsets = {0, 2, 3};
  t.records.ids = {0, 1, 6};
  t.records.id_log_q = {-1.5f, -0.25f, -0.0f};
  t.records.log_tail = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  t.reward = 1.0;
  t.reward_parts = {{"correct", 1.0}};
  return t;
}

}  // namespace

TEST_CASE("a checkpoint gives back weights, optimizer and counters bit for bit") {
  const TemporaryFolder run_folder;
  const fs::path run = run_folder.path();
  const TransformerConfig config = tiny_config(kTokenizer);
  Parameters parameters = Parameters::initialize(config, 5);
  parameters.set_requires_grad(true);
  AdamW optimizer(parameters, {.lr = 0.1});
  for (const std::string& name : parameters.names())
    for (float& g : parameters.at(name).grad_buffer().span<float>()) g = 0.01f;
  optimizer.step();
  const AdamW::State state = optimizer.state();
  const RunState counters{11, 352, 2, {{"credits", "5"}}};
  const fs::path folder = save_checkpoint(run, config, parameters, kTokenizer, &state, &counters, 11);
  CHECK(folder.filename() == "step-11");
  CHECK(find_checkpoint(run) == folder);
  CHECK(find_checkpoint(folder) == folder);

  const Checkpoint loaded = load_checkpoint(folder);
  CHECK(loaded.config == config);
  CHECK(loaded.parameters.fingerprints() == parameters.fingerprints());
  CHECK(loaded.tokenizer == kTokenizer);
  REQUIRE(loaded.state);
  CHECK(loaded.state->version == 11);
  CHECK(loaded.state->next_prompt == 352);
  CHECK(loaded.state->attempt == 2);
  CHECK(loaded.state->extra == counters.extra);
  REQUIRE(loaded.optimizer);
  CHECK(loaded.optimizer->numbers == state.numbers);
  for (const auto& [name, tensor] : state.tensors)
    CHECK(loaded.optimizer->tensors.at(name).to_doubles() == tensor.to_doubles());

  save_checkpoint(run, config, parameters, kTokenizer, &state, &counters, 11);  // a resumed run gets here again
  CHECK(load_checkpoint(folder).state->version == 11);
}

TEST_CASE("kill -9 at any moment of a checkpoint write leaves the previous one loadable") {
  const TemporaryFolder run_folder;
  const fs::path run = run_folder.path();
  const TransformerConfig config = tiny_config(kTokenizer);
  const Parameters parameters = Parameters::initialize(config, 5);
  const RunState counters{1, 0, 0, {}};
  save_checkpoint(run, config, parameters, kTokenizer, nullptr, &counters, 1);
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (uint64_t step = 2;; ++step) {
        const RunState now{step % 3 + 2, 0, 0, {}};
        save_checkpoint(run, config, parameters, kTokenizer, nullptr, &now, step % 3 + 2);
      }
    }
    ::usleep(
        static_cast<useconds_t>(2000 + 1700 * round));  // where the kill falls is arbitrary; every outcome must load
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
      if (entry.path().filename().string()[0] != '.') CHECK_NOTHROW(load_checkpoint(entry.path()));
    CHECK_NOTHROW(load_checkpoint(find_checkpoint(run)));
    CHECK(load_checkpoint(run / "checkpoints" / "step-1").state->version == 1);
  }
}

TEST_CASE("a damaged or absent checkpoint is named with its reason") {
  const TemporaryFolder run_folder;
  const fs::path run = run_folder.path();
  CHECK_THROWS_WITH(find_checkpoint(run), Catch::Contains(run.string()) && Catch::Contains("no checkpoint"));
  CHECK_THROWS_WITH(load_checkpoint(run / "none"), Catch::Contains("no such folder"));
  const TransformerConfig config = tiny_config(kTokenizer);
  const fs::path folder =
      save_checkpoint(run, config, Parameters::initialize(config, 5), kTokenizer, nullptr, nullptr, 3);
  CHECK_FALSE(load_checkpoint(folder).state);
  fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") / 2);
  CHECK_THROWS_AS(load_checkpoint(folder), CheckpointError);
  fs::create_directories(run / "checkpoints" / ".step-9.partial");
  fs::create_directories(run / "checkpoints" / "step-x");
  CHECK(find_checkpoint(run) == folder);
}

TEST_CASE("trajectories come back with the same bits") {
  const TemporaryFolder run_folder;
  const fs::path run = run_folder.path();
  algos::Trajectory failed;
  failed.failure = "the reward threw";
  write_trajectories(trajectory_path(run, 3), 3, {sample(), failed});
  const auto read = read_trajectories(trajectory_path(run, 3), kTokenizer.size());
  REQUIRE(read.size() == 2);
  CHECK(read[0].records == sample().records);
  CHECK(std::signbit(read[0].records.id_log_q[2]));
  CHECK(read[0].tokens == sample().tokens);
  CHECK(read[0].loss_mask == sample().loss_mask);
  CHECK(read[0].reward_parts == sample().reward_parts);
  CHECK(read[1].failure == failed.failure);
}

TEST_CASE("turns and endings come back, and files from before there were such can still be read") {
  const TemporaryFolder run_folder;
  const fs::path file = trajectory_path(run_folder.path(), 1);
  algos::Trajectory two = sample();
  two.turns = {{1, -0.5}, {1, 1.5}};
  two.ending = "turn_limit";
  two.format_errors = 300;
  write_trajectories(file, 1, {sample(), two});
  const auto read = read_trajectories(file, kTokenizer.size());
  CHECK(read[0].turns.empty());
  REQUIRE(read[1].turns.size() == 2);
  CHECK(read[1].turns[0].tokens == 1);
  CHECK(read[1].turns[0].reward == -0.5);
  CHECK(read[1].turns[1].reward == 1.5);
  CHECK(read[0].ending.empty());
  CHECK(read[1].ending == "turn_limit");
  CHECK(read[1].format_errors == 300);

  two.turns[0].tokens = 2;
  write_trajectories(file, 1, {two});
  CHECK_THROWS_WITH(read_trajectories(file, kTokenizer.size()), Catch::Contains("the turns' tokens do not add up"));

  // Version 2 is without the last two of 22 fields, an empty text and 0; version 1 has the number of turns, 1, in the
  // place of their list as well.
  write_trajectories(file, 1, {sample()});
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = bytes.find(from);
    REQUIRE(at != std::string::npos);
    bytes.replace(at, from.size(), to);
  };
  REQUIRE(bytes.ends_with(std::string("\xa0\x00", 2)));
  bytes.resize(bytes.size() - 2);
  replace(std::string("\xdc\x00\x16", 3), std::string("\xdc\x00\x14", 3));
  replace("version\x03", "version\x02");
  std::ofstream(file, std::ios::binary) << bytes;
  CHECK(read_trajectories(file, kTokenizer.size()).at(0).records == sample().records);
  replace("version\x02", "version\x01");
  replace("\x90\xc2\xc2\xa0", "\x01\xc2\xc2\xa0");
  std::ofstream(file, std::ios::binary) << bytes;
  const auto old = read_trajectories(file, kTokenizer.size());
  REQUIRE(old.size() == 1);
  CHECK(old[0].records == sample().records);
  CHECK(old[0].turns.empty());
  CHECK(old[0].reward == 1.0);
  replace("version\x01", "version\x04");
  std::ofstream(file, std::ios::binary) << bytes;
  CHECK_THROWS_WITH(read_trajectories(file, kTokenizer.size()), Catch::Contains("format version 4, not 1 to 3"));
}

TEST_CASE("a trajectory file cut at any byte, or with a flipped byte, is refused or read whole, never a crash") {
  const TemporaryFolder run_folder;
  const fs::path run = run_folder.path(), file = trajectory_path(run, 1);
  algos::Trajectory two = sample();
  two.turns = {{1, 0.0}, {1, 1.0}};
  write_trajectories(file, 1, {sample(), two});
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    std::ofstream(file, std::ios::binary) << bytes.substr(0, cut);
    CHECK_THROWS_WITH(read_trajectories(file, kTokenizer.size()), Catch::Contains(file.string()));
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x5a);
    std::ofstream(file, std::ios::binary) << changed;
    try {
      for (const auto& t : read_trajectories(file, kTokenizer.size()))
        CHECK((!t.failure.empty() || t.inconsistency(kTokenizer.size()).empty()));
    } catch (const std::runtime_error&) {
    }
  }
}

TEST_CASE("old trajectory files are pruned to the newest few") {
  const TemporaryFolder run_folder;
  const fs::path run = run_folder.path();
  for (int update = 1; update <= 6; ++update) write_trajectories(trajectory_path(run, update), update, {});
  prune_trajectories(run, 6, 2);
  CHECK_FALSE(fs::exists(trajectory_path(run, 4)));
  CHECK_FALSE(fs::exists(trajectory_path(run, 1)));
  CHECK(fs::exists(trajectory_path(run, 5)));
}
