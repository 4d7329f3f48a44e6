// tests/device/device_check.sh, which runs on machines that we never see: here on the emulated device, and on programs
// that fail.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/temporary_folder.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

struct Checked {
  int code = -1;
  std::string out;
  nlohmann::json report;
  std::string outcome(const std::string& step) const {
    for (const auto& each : report.at("steps"))
      if (each.at("step") == step) return each.at("outcome");
    return "no such step";
  }
};

/// The script with programs from `bin`; `settings` are of its environment.
Checked device_check(const TemporaryFolder& folder, const fs::path& bin, const std::string& settings,
                     const std::string& steps) {
  const std::string command = "cd " + folder.path().string() + " && DEVICE=emulated BIN=" + bin.string() + " " +
                              settings + " " MOTLEY_SOURCE_DIR "/tests/device/device_check.sh " + steps + " >out 2>&1";
  Checked checked;
  checked.code = WEXITSTATUS(std::system(command.c_str()));
  checked.out = folder.read("out");
  if (fs::exists(folder / "device-check/device-check.json"))
    checked.report = nlohmann::json::parse(folder.read("device-check/device-check.json"));
  return checked;
}

void program(const fs::path& file, const std::string& text) {
  std::ofstream(file) << "#!/bin/sh\n" << text;
  fs::permissions(file, fs::perms::owner_all);
}

}  // namespace

TEST_CASE("device-check runs on the emulated device: experiments, every benchmark, a table and a report") {
  const TemporaryFolder folder;
  const fs::path bin = fs::path(MOTLEY_BINARY).parent_path();
#if defined(__SANITIZE_ADDRESS__)
  const std::vector<std::string> experiments;  // device_run_test.cpp has such runs
#else
  const std::vector<std::string> experiments{"bitwise", "quickstart"};
#endif
  std::string steps = "products attention quantizers decode trainer torch formats";
  for (const std::string& each : experiments) steps += " " + each;
  const Checked checked = device_check(folder, bin, "", steps);
  CAPTURE(checked.out);
  REQUIRE(checked.code == 0);
  CHECK(checked.out.find("all checks passed") != std::string::npos);
  CHECK(checked.report.at("device") == "emulated");
  CHECK(checked.report.at("steps").size() == 7 + experiments.size());
  for (const std::string& step : experiments) CHECK(checked.outcome(step) == "ok");
  for (const char* step : {"products", "decode", "trainer"}) CHECK(checked.outcome(step) == "ok");
  CHECK(checked.outcome("formats") == "not here");  // nvcc's alone
  std::map<std::string, int> rows;
  for (const auto& row : checked.report.at("rows")) {
    CHECK(row.at("seconds").get<double>() > 0);
    ++rows[row.at("group")];
  }
  CHECK(rows == std::map<std::string, int>{
                    {"products", 16}, {"attention", 3}, {"quantizers", 7}, {"decode", 3}, {"trainer", 2}});
  CHECK(folder.read("device-check/table.txt").find("h100-fp8, batch 2") != std::string::npos);
}

TEST_CASE("a step of device-check that fails, hangs or is missing stops no other, and is told") {
  const TemporaryFolder folder;
  const fs::path bin = folder / "bin";
  fs::create_directory(bin);
  program(bin / "kernels_check", "echo 'matmul f32: wrong'; exit 1\n");
  program(bin / "test_tensor", "sleep 30\n");
  program(bin / "device_bench", "echo $1 on $3\n");
  // A run whose sampler and trainer disagree in its second update.
  program(bin / "motley",
          "mkdir -p runs/bitwise-0 && printf '%s\\n' '{\"kl/sampler_trainer\":0,\"ratio/max\":1}' "
          "'{\"kl/sampler_trainer\":1e-9,\"ratio/max\":1}' >runs/bitwise-0/metrics.jsonl\n");
  const Checked checked = device_check(folder, bin, "STEP_LIMIT=1", "kernels gradients bitwise quickstart products");
  CAPTURE(checked.out);
  CHECK(checked.code == 1);
  CHECK(checked.outcome("kernels") == "FAILED");
  CHECK(checked.out.find("    matmul f32: wrong") != std::string::npos);
  CHECK(checked.outcome("gradients") == "out of time");
  CHECK(checked.outcome("bitwise") == "FAILED");
  CHECK(checked.outcome("quickstart") == "FAILED");  // it left no metrics
  CHECK(checked.outcome("products") == "ok");
  CHECK(checked.out.find("A CHECK FAILED") != std::string::npos);
  const Checked late = device_check(folder, bin, "SECONDS_IN_ALL=0", "products");
  CHECK(late.code == 1);
  CHECK(late.outcome("products") == "no time left");
  const Checked typo = device_check(folder, bin, "", "product");
  CHECK(typo.code == 2);
  CHECK(typo.out.find("no step 'product'; there are: formats fragments kernels") != std::string::npos);
}

TEST_CASE("cards are known by the longest name, and wrong arguments of the device's programs are refused") {
  const TemporaryFolder folder;
  const std::string bin = fs::path(MOTLEY_BINARY).parent_path().string();
  const auto run = [&](const std::string& command) {
    const int code =
        WEXITSTATUS(std::system((bin + "/" + command + " >" + (folder / "out").string() + " 2>&1").c_str()));
    return std::pair(code, folder.read("out"));
  };
  const auto share_on = [&](const std::string& card) {
    const std::string rows = (folder / "rows").string();
    REQUIRE(run("device_bench products --tiny --device emulated --card '" + card + "' --json " + rows).first == 0);
    const std::string text = folder.read("rows");
    const auto row = nlohmann::json::parse(text.substr(0, text.find('\n')));
    return row.value("share_of_bandwidth", 0.0) / row.at("gigabytes_per_second").get<double>();
  };
  CHECK(share_on("NVIDIA L40S") == Approx(1.0 / 864));
  CHECK(share_on("NVIDIA H200 NVL") == Approx(1.0 / 4800));
  CHECK(share_on("NVIDIA A100-SXM4-40GB") == Approx(1.0 / 1555));
  CHECK(share_on("Quadro") == 0.0);
  for (const char* wrong : {"device_bench", "device_bench product", "device_bench products --device",
                            "device_bench products --device gpu", "kernels_check --tiny", "kernels_check --device"}) {
    const auto [code, out] = run(wrong);
    CAPTURE(wrong, out);
    CHECK(code == 2);
    CHECK(std::count(out.begin(), out.end(), '\n') == 1);
  }
}

}  // namespace motley::app
