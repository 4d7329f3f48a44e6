// What a user, a disk or an attacker can put in front of the binary: one message and the right exit code, no crash.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/memory.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

using nlohmann::json;

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Two updates without a warm start; run folder runs/small-0.
std::vector<std::string> short_run(const std::vector<std::string>& further = {}) {
  std::vector<std::string> sets{"run.updates=4", "warmstart.steps=0", "run.checkpoint_every=2"};
  sets.insert(sets.end(), further.begin(), further.end());
  return run_arguments("x.toml", sets, {"--stop-after", "2"});
}

/// A run folder with a checkpoint of update 2, and the means to damage its files.
struct Damaged {
  Damaged() {
    folder.write("x.toml", kSmallRun);
    const Ended ended = run_binary(folder, short_run());
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
  }
  const std::string checkpoint = "runs/small-0/checkpoints/step-2/";
  json read(const std::string& file) const { return json::parse(folder.read(checkpoint + file)); }
  void write(const std::string& file, const json& content) const { folder.write(checkpoint + file, content.dump()); }
  Ended resume() const { return run_binary(folder, {"run", "--resume", "runs/small-0"}); }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("keys that nest without end are refused, not followed") {
  const TemporaryFolder folder;
  const std::string deep = repeated("a.", 100000) + "a";
  folder.write("key.toml", deep + " = 1\n");
  folder.write("header.toml", "[" + deep + "]\n");
  folder.write("inline.toml", "x = {k = \"\"\"q\"\"\"\", " + deep + " = 1}\n");
  for (const char* file : {"key.toml", "header.toml", "inline.toml"})
    require_refused(run_binary(folder, {"run", file}), ":1:");
  folder.write("x.toml", kSmallRun);
  const std::string value = "{" + repeated("a.", 30000) + "a = 1}";
  require_refused(run_binary(folder, run_arguments("x.toml", {"run.updates=" + value})), "a key of more than");
  // Dots in texts, comments and lists are no keys.
  folder.write("dots.toml", "# " + repeated(".", 200) + "\nname = \"x\"\n" + with(kSmallRun, "name = \"small\"\n", "") +
                                "temperature = 1.0 # " + repeated("a.b ", 20) + "\n");
  CHECK(run_binary(folder, run_arguments("dots.toml", {"run.dir=a/../b.c.d.e.f.g.h.i.j.k.l"}, {"--dry-run"})).code ==
        0);
}

TEST_CASE("a message stays one short line of printable text whatever it quotes") {
  const TemporaryFolder folder;
  folder.write("long.toml", "name = \"" + std::string(1000000, 'x') + "\"\n");
  require_refused(run_binary(folder, {"run", "long.toml"}), "long.toml:1:8");
  folder.write("endless.toml", "");
  std::filesystem::resize_file(folder / "endless.toml", (1 << 20) + 1);
  for (const char* file : {"endless.toml", "/dev/zero"})
    require_refused(run_binary(folder, {"run", file}), "is larger than 1 MiB");
  folder.write("escape.toml", "\"\\u001b[2J\" = 1\n");
  const Ended ended = run_binary(folder, {"run", "escape.toml"});
  require_refused(ended, "unknown key");
  CHECK(ended.err.find('\x1b') == std::string::npos);
  folder.write("x.toml", kSmallRun);
  require_refused(run_binary(folder, run_arguments("x.toml", {"run.dir=\xff"}, {"--dry-run"})), "UTF-8");
}

TEST_CASE("a model that cannot fit is refused before anything is made") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  require_refused(run_binary(folder, run_arguments("x.toml", {"model.width=65536", "model.layers=1000"})),
                  "this machine has");
  CHECK_FALSE(std::filesystem::exists(folder / "runs"));
  Experiment experiment;
  experiment.model.config.layers = 1;
  experiment.model.config.width = 2;
  experiment.model.config.heads = experiment.model.config.kv_heads = 1;
  experiment.model.config.ffn = 1;
  experiment.model.config.max_positions = 10;
  // Embedding 2, norms 2 + 2 + 2, four 2x2 projections, gate, up and down of 2; a table of 10 x 2 in the learner.
  CHECK(least_memory(experiment) == 4.0 * (5 * (2 + 6 + 16 + 6) + 20));
}

TEST_CASE("a run folder that cannot be made, or not be filled, is refused or leaves nothing") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  require_refused(run_binary(folder, run_arguments("x.toml", {"run.dir=x.toml"})), "run.dir = x.toml: error: x.toml");
  require_refused(run_binary(folder, run_arguments("x.toml", {"run.dir=/proc/runs"})), "/proc/runs cannot be made");
  // No file may grow: as on a full disk.
  const Ended full = run_binary(folder, short_run(), "trap '' XFSZ; ulimit -f 1;");
  CHECK(full.code == 1);
  CHECK_FALSE(std::filesystem::exists(folder / "runs/small-0"));
}

TEST_CASE("prompts and demonstrations without room are the input's fault") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  const std::string small = "model.max_positions=7";  // "1+2=" and a reply fit, "01020304=" does not
  require_refused(run_binary(folder, run_arguments("x.toml", {small, "sampling.max_tokens=2", "tasks.1.numbers=9"})),
                  "leaves no room for a reply");
  folder.write("pairs.jsonl", "{\"prompt\": \"1+2=\", \"answer\": \"3\"}\n\n{\"prompt\": \"1?\", \"answer\": \"3\"}\n");
  require_refused(run_binary(folder, run_arguments("x.toml", {"warmstart.data=pairs.jsonl"})), "pairs.jsonl:3: ");
  folder.write("pairs.jsonl", "{\"prompt\": \"1+2=\", \"answer\": \"" + std::string(40, '1') + "\"}\n");
  require_refused(run_binary(folder, run_arguments("x.toml", {"warmstart.data=pairs.jsonl"})), "pairs.jsonl:1: ");
  CHECK_FALSE(std::filesystem::exists(folder / "runs/small-0"));
}

TEST_CASE("a damaged warm start is made again, and then taken from the cache") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  const std::vector<std::string> arguments = run_arguments("x.toml", {"run.updates=1", "trainer.warmup_updates=0"});
  REQUIRE(run_binary(folder, arguments).code == 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "runs/.warmstart"))
    std::filesystem::resize_file(entry.path() / "model.safetensors", 100);
  CHECK(run_binary(folder, arguments).err.find("warm start 60/60") != std::string::npos);
  CHECK(run_binary(folder, arguments).err.find("taken from the cache") != std::string::npos);
}

TEST_CASE("closed and full output streams lose no data in silence") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  // Without its own descriptor 2 the progress would go into the first file that the run opens.
  REQUIRE(run_binary(folder, short_run(), "exec 3<&1; true;").code == 0);
  std::string command = "cd '" + folder.path().string() + "' && " MOTLEY_BINARY " run x.toml --set run.dir=closed";
  command += " --set warmstart.steps=0 --stop-after 2 2>&- >&- <&-";
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string metrics = folder.read("closed/small-0/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 3);
  CHECK(metrics.find("reward ") == std::string::npos);
  const int status = std::system(("exec 2>/dev/null; " MOTLEY_BINARY " list profiles >/dev/full"));
  CHECK(WEXITSTATUS(status) == 1);
}

TEST_CASE("a reader of the progress that goes away does not end the run") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  const std::string command =
      "cd '" + folder.path().string() +
      "' && { " MOTLEY_BINARY
      " run x.toml --set warmstart.steps=0 2>&1 >/dev/null; echo $? >code; } | head -n 1 >first";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(folder.read("code") == "0\n");
  CHECK(folder.read("first") == "run folder runs/small-0\n");
}

TEST_CASE("a state.json that says impossible things is refused before the run goes on") {
  const Damaged damaged;
  const json state = damaged.read("state.json");
  const auto refuse = [&](const std::string& pointer, const json& value, const std::string& part) {
    json changed = state;
    changed[json::json_pointer(pointer)] = value;
    damaged.write("state.json", changed);
    require_refused(damaged.resume(), part);
  };
  refuse("/run/version", -1, "version");
  refuse("/run/version", UINT64_MAX, "version");
  refuse("/run/version", 2.0, "version");
  refuse("/run/next_prompt", UINT64_MAX, "next_prompt");
  refuse("/run/attempt", uint64_t{1} << 40, "attempt");
  refuse("/run/extra/unfinished", "1,x", "numbers");
  refuse("/run/extra/unfinished", "18446744073709551615", "not begun");
  refuse("/optimizer/adam.steps", "much", "adam.steps");
  refuse("/optimizer/adam.steps", "nan", "adam.steps");
  refuse("/optimizer/loss_scale.scale", "-0x1p+4", "loss scale");
  refuse("/optimizer", json::object(), "adam.steps is missing");
  damaged.write("state.json", nullptr);
  require_refused(damaged.resume(), "state.json is no JSON object");
  damaged.write("state.json", state);
  CHECK(damaged.resume().code == 0);
}

TEST_CASE("a model and a tokenizer that do not belong together") {
  const Damaged damaged;
  const json tokenizer = damaged.read("tokenizer.json"), config = damaged.read("config.json");
  json larger = tokenizer;
  auto& ids = larger["model"]["vocab"];
  const int first_special = ids.at("<pad>").get<int>();
  for (const char* name : {"<pad>", "<bos>", "<eos>"}) ids[name] = ids[name].get<int>() + 1;
  ids["zzz"] = first_special;
  for (json& added : larger["added_tokens"]) added["id"] = added["id"].get<int>() + 1;
  std::string& pattern = larger["pre_tokenizer"]["pattern"]["Regex"].get_ref<std::string&>();
  pattern = "zzz|" + pattern;
  damaged.write("tokenizer.json", larger);
  require_refused(damaged.resume(), "a vocabulary of");
  require_refused(run_binary(damaged.folder, {"generate", "runs/small-0", "--prompt", "1+2="}), "a vocabulary of");
  damaged.write("tokenizer.json", tokenizer);
  json wide = config;
  wide["max_position_embeddings"] = 100000000;
  damaged.write("config.json", wide);
  require_refused(run_binary(damaged.folder, {"generate", "runs/small-0", "--prompt", "1+2="}), "at most 1048576");
}

TEST_CASE("commands on a policy refuse what they cannot use") {
  const Damaged damaged;
  const TemporaryFolder& folder = damaged.folder;
  folder.write("empty.jsonl", "\n\n");
  require_refused(run_binary(folder, {"score", "runs/small-0", "--input", "empty.jsonl"}), "no line of tokens");
  require_refused(run_binary(folder, {"score", "runs/small-0", "--input", "runs"}), "is a folder");
  for (const char* seed : {"-1", "18446744073709551616"})
    require_refused(run_binary(folder, {"generate", "runs/small-0", "--prompt", "1+2=", "--seed", seed}), "--seed");
  // Weights that are all NaN: nothing can be drawn, and a pass@k of nothing is no result.
  std::string bytes = folder.read(damaged.checkpoint + "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::fill(bytes.begin() + 8 + static_cast<int64_t>(header), bytes.end(), '\xff');
  folder.write(damaged.checkpoint + "model.safetensors", bytes);
  const Ended ended = run_binary(folder, {"eval", "runs/small-0", "--task", "arithmetic", "--option", "digits=1"});
  CAPTURE(ended.err);
  CHECK(ended.code == 1);
  CHECK(ended.err.find("samples failed") != std::string::npos);
}

TEST_CASE("a pipe in place of a checkpoint's file is refused, not waited for") {
  const Damaged damaged;
  for (const std::string file :
       {"model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json", "state.json"}) {
    CAPTURE(file);
    const std::string path = (damaged.folder / (damaged.checkpoint + file)).string();
    std::filesystem::rename(path, path + ".kept");
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    Binary resume(damaged.folder, {"run", "--resume", "runs/small-0"});
    for (int i = 0; i < 10000 && resume.running(); ++i) usleep(1000);
    REQUIRE_FALSE(resume.running());
    require_refused(resume.wait(), path.substr(path.rfind('/') + 1) + ": is no regular file");
    std::filesystem::rename(path + ".kept", path);
  }
  CHECK(damaged.resume().code == 0);
}

TEST_CASE("an optimizer's moments that no run can have are refused before the run goes on") {
  const Damaged damaged;
  const std::string file = "optimizer.safetensors", good = damaged.folder.read(damaged.checkpoint + file);
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  const json index = json::parse(good.substr(8, header));
  const std::string layer = "/model.layers.0.self_attn.q_proj.weight";
  const auto refuse = [&](const std::string& name, float value, const std::string& part) {
    CAPTURE(name, value);
    std::string bytes = good;
    const size_t at = 8 + header + index.at(name).at("data_offsets").at(1).get<size_t>() - sizeof value;  // the last
    std::memcpy(&bytes[at], &value, sizeof value);
    damaged.folder.write(damaged.checkpoint + file, bytes);
    require_refused(damaged.resume(), name + part);
  };
  refuse("adam.first" + layer, NAN, " holds nan, which is no mean of gradients");
  refuse("adam.first" + layer, -INFINITY, " holds -inf");
  refuse("adam.second" + layer, NAN, " holds nan");
  refuse("adam.second" + layer, INFINITY, " holds inf");
  refuse("adam.second" + layer, -1.0f, " holds -1.000000, which is no mean of squares");
  damaged.folder.write(damaged.checkpoint + file, good);
  CHECK(damaged.resume().code == 0);
}

TEST_CASE("two processes do not write one run folder") {
  const Damaged damaged;
  const TemporaryFolder outside;  // the second process must not write over the first one's output files
  Binary first(damaged.folder, {"run", "--resume", "runs/small-0", "--set", "run.updates=100000"});
  while (first.running() && first.log().find("update ") == std::string::npos) usleep(1000);
  const std::string folder = (damaged.folder / "runs/small-0").string();
  require_refused(run_binary(outside, {"run", "--resume", folder}), "another motley run");
  first.signal(SIGTERM);
  CHECK(first.wait().code == 0);
}

}  // namespace motley::app
