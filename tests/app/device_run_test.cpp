// Runs on devices: on `emulated`, which is everywhere, and on a CUDA device that this machine lacks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <regex>

#include "kernels/device_memory.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

/// Little of everything: a warm start, two groups, candidate sets, a reference policy, an evaluation. Answers are
/// wrong, so that the gradient is that of the entropy and of the KL term.
const std::string kTinyOnDevice = R"(name = "tiny"
[run]
updates = 2
async = false
keep_trajectories = "none"
[model]
layers = 1
width = 8
heads = 1
kv_heads = 1
ffn = 8
max_positions = 16
[[tasks]]
env = "arithmetic"
digits = 1
[warmstart]
steps = 2
batch = 2
cache = false
[sampling]
top_p = 0.9
max_tokens = 2
[algo]
correction = "sc+mis"
prompts = 2
group_size = 2
kl = "k2"
kl_coefficient = 0.1
entropy_coefficient = 0.01
[trainer]
profile = "bf16"
lr = 1e-2
[[samplers]]
name = "plain"
max_sequences = 2
[[samplers]]
name = "four"
profile = "nvfp4"
max_sequences = 2
[eval]
prompts = 1
samples = 1
k = [1]
)";

const std::vector<std::string> kEmulated{"trainer.device=emulated", "samplers.0.device=emulated",
                                         "samplers.1.device=emulated", "eval.device=emulated"};

TEST_CASE("a run on the emulated device ends, with the metrics and the weights of the CPU's") {
  const TemporaryFolder here, there;
  here.write("x.toml", kTinyOnDevice);
  there.write("x.toml", kTinyOnDevice);
  const Ended cpu = run_binary(here, run_arguments("x.toml", {}));
  const Ended emulated = run_binary(there, run_arguments("x.toml", kEmulated));
  CAPTURE(cpu.err, emulated.err);
  REQUIRE(cpu.code == 0);
  REQUIRE(emulated.code == 0);
  const std::string metrics = here.read("runs/tiny-0/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 3);
  CHECK(std::regex_search(metrics, std::regex("\"grad_norm\":[0-9.]*[1-9]")));
  CHECK((clockless(there.read("runs/tiny-0/metrics.jsonl")) == clockless(metrics)));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string path = std::string("runs/tiny-0/checkpoints/step-2/") + file;
    CHECK((there.read(path) == here.read(path)));
  }
  CHECK(there.read("runs/tiny-0/experiment.toml").find("device = \"emulated\"") != std::string::npos);
}

TEST_CASE("a run of accelerators' profiles on the emulated device ends, near the CPU's log-probabilities") {
  const TemporaryFolder folder;
  folder.write(
      "x.toml",
      kTinyOnDevice + "profiles = [\"bf16\", \"h200-bf16\"]\n[[samplers]]\nname = \"a100\"\nmax_sequences = 2\n");
  std::vector<std::string> sets = kEmulated;
  sets.insert(sets.end(), {"samplers.0.profile=h100-fp8", "samplers.1.profile=b200-nvfp4",
                           "samplers.2.profile=h100-fp8-accumulate14", "samplers.2.device=emulated"});
  const Ended ended = run_binary(folder, run_arguments("x.toml", sets));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const std::string metrics = folder.read("runs/tiny-0/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 3);
  std::smatch kl;
  REQUIRE(std::regex_search(metrics, kl, std::regex("\"kl/sampler_trainer\":(-?[0-9.e-]+)")));
  CHECK(std::fabs(std::stod(kl[1])) < 0.05);  // of 4-bit weights too; a product gone wrong is off by more
}

TEST_CASE("a CUDA device that is not there ends the run before any work is done") {
  const TemporaryFolder folder;
  const std::string absent = "cuda:" + std::to_string(kernels::cuda::device_count());
  const auto with = [&](const std::string& section, const std::string& value) {
    std::string text = kTinyOnDevice;
    return text.insert(text.find(section) + section.size() + 1, "device = \"" + value + "\"\n");
  };
  const auto refused = [&](const std::string& section, const std::string& where, const std::string& key) {
    folder.write("x.toml", with(section, absent));
    const Ended ended = run_binary(folder, {"run", "x.toml"});
    CAPTURE(ended.err);
    CHECK(ended.code == 2);
    CHECK(ended.err.find("x.toml:" + where + ": error: " + key + " = \"" + absent + "\"") != std::string::npos);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK_FALSE(std::filesystem::exists(folder / "runs"));
  };
  refused("[trainer]", "31:10", "trainer.device");
  refused("name = \"four\"", "38:10", "samplers.1.device");
  refused("[eval]", "41:10", "eval.device");
  // What another machine is to run can be looked at here.
  folder.write("x.toml", with("[trainer]", absent));
  const Ended dry = run_binary(folder, {"run", "x.toml", "--dry-run"});
  CHECK(dry.code == 0);
  CHECK(dry.out.find("device = \"" + absent + "\"") != std::string::npos);
}

TEST_CASE("a device of no known form") {
  const TemporaryFolder folder;
  folder.write("x.toml", kTinyOnDevice);
  for (const char* name : {"gpu", "cuda"}) {
    const Ended ended = run_binary(folder, run_arguments("x.toml", {std::string("trainer.device=") + name}));
    CHECK(ended.code == 2);
    CHECK(ended.err.find("cpu, cuda:N (as in cuda:0) or emulated") != std::string::npos);
  }
}

}  // namespace
}  // namespace motley::app
