// --device of the commands that compute, and what `doctor` and `list profiles` say of devices.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/device_memory.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

const std::string kOneUpdate = R"(name = "tiny"
[run]
updates = 1
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
steps = 1
batch = 2
cache = false
[sampling]
max_tokens = 2
[algo]
correction = "mis"
prompts = 1
group_size = 2
[[samplers]]
name = "plain"
max_sequences = 2
[eval]
prompts = 1
samples = 1
k = [1]
)";

using Words = std::vector<std::string>;
Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Words kGenerate{"generate", "runs/tiny-0", "--prompt", "1+1=", "-n", "2", "--max-tokens", "3", "--json"};
const Words kScore{"score", "runs/tiny-0", "--input", "in.jsonl"};
const Words kEval{"eval", "runs/tiny-0", "--task",       "arithmetic", "--prompts", "1",
                  "--k",  "1,2",         "--max-tokens", "2",          "--json"};
const Words kMismatch{"mismatch",      "runs/tiny-0", "--trainer",     "fp32",   "--responses", "2",
                      "--length",      "3",           "--run-on",      "--seed", "1",           "--sampler",
                      "a100-bf16,fp8", "--json",      "--attribution", "off"};

nlohmann::json result_of(const Ended& ended) {
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  return nlohmann::json::parse(ended.out);
}

}  // namespace

TEST_CASE("generate, score, eval and mismatch compute on the device that is asked for") {
  const TemporaryFolder folder;
  folder.write("x.toml", kOneUpdate);
  REQUIRE(run_binary(folder, {"run", "x.toml"}).code == 0);
  folder.write("in.jsonl", "{\"tokens\": [1, 2, 3]}\n");
  const Words emulated{"--device", "emulated"};

  const auto here = result_of(run_binary(folder, kGenerate)),
             there = result_of(run_binary(folder, kGenerate + emulated));
  CHECK(here.at("device") == "cpu");
  CHECK(there.at("device") == "emulated");
  CHECK(there.at("samples") == here.at("samples"));  // bf16: the CPU's bits

  const Ended scored = run_binary(folder, kScore + emulated);
  REQUIRE(scored.code == 0);
  CHECK(scored.out == run_binary(folder, kScore).out);
  const Ended on_units = run_binary(folder, kScore + emulated + Words{"--profile", "b200-nvfp4"});
  CHECK(on_units.code == 0);

  auto evaluated = result_of(run_binary(folder, kEval + emulated));
  CHECK(evaluated.at("device") == "emulated");
  evaluated["device"] = "cpu";
  CHECK(evaluated == result_of(run_binary(folder, kEval)));

  const Ended compared = run_binary(folder, kMismatch + emulated);
  const auto mismatch = result_of(compared);
  CHECK(mismatch.at("device") == "emulated");
  CHECK(mismatch.at("results")[1].at("records_that_differ") == 0);  // fp8: the CPU's bits
  CHECK(mismatch.at("results")[0].at("largest_difference_of_records").get<double>() < 1e-4);
  CHECK(compared.err.find("a100-bf16: the engine, whose products are on matrix units, recorded") != std::string::npos);
  CHECK(compared.err.find("warning") == std::string::npos);
  CHECK(result_of(run_binary(folder, kMismatch)).at("results")[0].at("records_that_differ") == 0);
}

TEST_CASE("a device that is not here, and one of no known form, are refused by every command") {
  const TemporaryFolder folder;
  const std::string absent = "cuda:" + std::to_string(kernels::cuda::device_count());
  for (const Words& command : {kGenerate, kScore, kEval, kMismatch}) {
    const Ended none = run_binary(folder, command + Words{"--device", absent});
    require_refused(none, "--device " + absent + ": error: this m");  // motley was built without, or machine has no
    CHECK(none.err.find("motley doctor") != std::string::npos);
    require_refused(run_binary(folder, command + Words{"--device", "gpu"}),
                    "--device gpu: error: there is no such device; allowed: cpu, cuda:N (as in cuda:0) or emulated");
  }
}

TEST_CASE("doctor says what computes each profile on each device, and the list of profiles on one") {
  const TemporaryFolder folder;
  const auto doctor = result_of(run_binary(folder, {"doctor", "--json"}));
  const std::string emulated = doctor.at("on emulated").at("value"), cpu = doctor.at("on cpu").at("value");
  CHECK(emulated.find("chain: fp32, bf16") != std::string::npos);
  CHECK(emulated.find("matrix units: b200-nvfp4") != std::string::npos);
  CHECK(emulated.find("modelled accumulation: h100-fp8-accumulate14") != std::string::npos);
  CHECK(emulated.find("with kernels = \"vendor\": matrix units") != std::string::npos);
  for (const char* none : {"units", "vendor"}) CHECK(cpu.find(none) == std::string::npos);
  const auto profiles = result_of(run_binary(folder, {"list", "profiles", "--json"}));
  for (const auto& entry : profiles.at("profiles")) {
    const std::string name = entry.at("name"), text = entry.at("text");
    CAPTURE(name, text);
    const std::string body = name == "h100-fp8" ? "matrix units" : name == "fp8" || name == "trainer" ? "chain" : "";
    CHECK(text.find("on a device: " + body) != std::string::npos);
  }
}

}  // namespace motley::app
