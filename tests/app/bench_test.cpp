// motley bench: what it measures is shown, in full and as JSON; names are checked. No time is judged.
#include "app/bench.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/input_error.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

nlohmann::json bench(const TemporaryFolder& folder, std::vector<std::string> words) {
  if (words.front() != "run") words.push_back("--quick");
  words.insert(words.begin(), "bench");
  words.push_back("--json");
  const Ended ended = run_binary(folder, words, "export TMPDIR=$PWD;");
  CAPTURE(words, ended.err);
  REQUIRE(ended.code == 0);
  REQUIRE(std::count(ended.out.begin(), ended.out.end(), '\n') == 1);
  return nlohmann::json::parse(ended.out);
}

size_t count_rows(const nlohmann::json& json, const std::string& key, const nlohmann::json& value) {
  size_t count = 0;
  for (const nlohmann::json& row : json.at("rows")) count += row.contains(key) && row.at(key) == value;
  return count;
}

void check_rows(const nlohmann::json& json) {
  REQUIRE(!json.at("rows").empty());
  for (const nlohmann::json& row : json.at("rows")) {
    CAPTURE(row.dump());
    const nlohmann::json& seconds = row.at("seconds");
    CHECK(seconds.at("low") > 0.0);
    CHECK(seconds.at("low") <= seconds.at("median"));
    CHECK(seconds.at("median") <= seconds.at("high"));
    CHECK(row.at("threads") >= 1);
  }
}

}  // namespace

TEST_CASE("bench kernels times every group, against the ceilings of this machine") {
  const TemporaryFolder folder;
  const nlohmann::json json = bench(folder, {"kernels"});
  check_rows(json);
  for (const auto& [name, make] : kernel_groups()) CHECK(count_rows(json, "group", name) > 0);
  for (const char* profile : {"fp32", "bf16", "fp16", "fp8", "mxfp8", "mxfp4", "nvfp4"})
    CHECK(count_rows(json, "profile", profile) > 0);
  const nlohmann::json& ceilings = json.at("ceilings");
  CHECK(ceilings.at("by_threads").at(0).at("gflops") > 0.0);
  CHECK(ceilings.at("by_threads").at(0).at("read_gigabytes_per_second") > 0.0);
  CHECK(ceilings.at("two_cores").is_boolean());
  CHECK(json.at("machine").contains("last_level_cache_bytes"));
  CHECK(json.at("build").contains("compiler"));
  CHECK(bench(folder, {"kernels", "--only", "optimizer", "--threads", "1,2"}).at("rows").size() == 2);
}

TEST_CASE("bench sampler and trainer tell tokens per second by shape, profile, batch and context") {
  const TemporaryFolder folder;
  const nlohmann::json sampler =
      bench(folder, {"sampler", "--shape", "1M", "--profile", "bf16,b200-nvfp4", "--batch", "1,3"});
  check_rows(sampler);
  CHECK(sampler.at("rows").size() == 4);
  CHECK(sampler.at("rows").at(3).at("tokens_per_second") > 0.0);
  const nlohmann::json context =
      bench(folder, {"sampler", "--profile", "fp8", "--batch", "2", "--context", "16,40", "--rows-only"});
  check_rows(context);
  CHECK(count_rows(context, "context", 40) == 1);
  CHECK(context.at("ceilings").at("by_threads").empty());
  const nlohmann::json trainer = bench(folder, {"trainer", "--profile", "fp32,fp16"});
  check_rows(trainer);
  CHECK(trainer.at("rows").size() == 2);
  CHECK(trainer.at("rows").at(1).at("peak_bytes") > 1e6);
}

TEST_CASE("bench weights tells how fast weights travel, and how many bytes of them") {
  const TemporaryFolder folder;
  const nlohmann::json weights = bench(folder, {"weights", "--profile", "bf16,nvfp4", "--rows-only"});
  const nlohmann::json& rows = weights.at("rows");
  REQUIRE(rows.size() == 8);
  for (size_t i = 0; i < 6; ++i) CHECK(rows.at(i).at("gigabytes_per_second") > 0.0);
  for (size_t i = 6; i < 8; ++i) {
    const nlohmann::json& row = rows.at(i);
    CHECK(row.at("full") <= row.at("plain"));
    CHECK(row.at("delta, lr 1e-06") < row.at("delta, lr 0.0004"));
    CHECK(row.at("delta, lr 0.0004") < row.at("plain"));
  }
  CHECK(rows.at(7).at("plain") < rows.at(6).at("plain"));  // nvfp4 is smaller than bf16
}

TEST_CASE("bench actors times a request here and over loopback, and whole episodes") {
  const TemporaryFolder folder;
  const nlohmann::json rows = bench(folder, {"actors", "--quick"}).at("rows");
  REQUIRE(rows.size() == 3);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(rows.at(i).at("engine_microseconds") > 0.0);
    CHECK(rows.at(i).at("median_microseconds") > rows.at(i).at("engine_microseconds"));
    CHECK(rows.at(i).at("p99_microseconds") >= rows.at(i).at("median_microseconds"));
  }
  CHECK(rows.at(2).at("trajectories") == 5 * 1024);
  CHECK(rows.at(2).at("microseconds_each") > rows.at(2).at("microseconds_each_without_compute"));
}

TEST_CASE("a training step's peak of memory leaves the arrays of the ceilings out") {
  const TemporaryFolder folder;
  const std::vector<std::string> words{"bench", "trainer", "--shape", "1M", "--profile", "fp32"};
  const auto peak = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    more.insert(more.end(), {"--repetitions", "1", "--json"});
    const Ended ended = run_binary(folder, more);
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
    return nlohmann::json::parse(ended.out).at("rows").at(0).at("peak_bytes").get<double>();
  };
  const double alone = peak({"--rows-only"});
  CHECK(peak({}) < alone + 64e6);  // the arrays are 128 MiB at least, and one per thread
}

TEST_CASE("a signal ends bench run at once: no result, no process and no folder are left") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  Binary bench(folder, {"bench", "run", "x.toml", "--set", "run.updates=1000000"}, "export TMPDIR=$PWD;");
  while (bench.running() && bench.log().find("update ") == std::string::npos) usleep(1000);
  bench.signal(GENERATE(SIGINT, SIGTERM));
  const Ended ended = bench.wait();
  CAPTURE(ended.err);
  CHECK(ended.code == 1);
  CHECK(ended.out.empty());
  CHECK(ended.err.find("stopped by a signal") != std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) CHECK(entry.is_regular_file());
}

TEST_CASE("bench run breaks the wall time of an experiment down and leaves nothing") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  const nlohmann::json json = bench(folder, {"run", "x.toml", "--set", "run.updates=3", "--set", "warmstart.steps=2"});
  const nlohmann::json& row = json.at("rows").at(0);
  CHECK(row.at("updates") == 3);
  CHECK(row.at("wall_seconds") > 0.0);
  CHECK(row.at("model_compute_seconds") > 0.0);
  CHECK(row.at("model_compute_seconds") <= row.at("wall_seconds"));
  CHECK(row.at("starved_share") >= 0.0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) CHECK(entry.is_regular_file());
}

TEST_CASE("bench shows a table, with progress on stderr alone") {
  const TemporaryFolder folder;
  const Ended ended = run_binary(folder, {"bench", "kernels", "--only", "sampling,rows", "--quick"});
  CHECK(ended.code == 0);
  CHECK(ended.out.find("ceiling, 1 thread: ") == 0);
  CHECK(ended.out.find("RMSNorm forward") != std::string::npos);
  CHECK(ended.out.find("bench: ") == std::string::npos);
  CHECK(ended.err.find("bench: rows: RMSNorm forward") != std::string::npos);
}

TEST_CASE("bench refuses unknown names with the nearest one") {
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "bench");
    require_refused(run_binary(folder, words), part);
  };
  refused({"kernel"}, "did you mean 'kernels'?");
  refused({"kernels", "--only", "heads", "--quick"}, "did you mean 'head'?");
  refused({"kernels", "x.toml"}, "belong to motley bench run");
  refused({"sampler", "--shape", "135m", "--quick"}, "did you mean '135M'?");
  refused({"sampler", "--profile", "bf17", "--quick"}, "did you mean 'bf16'?");
  refused({"trainer", "--profile", "nvfp4", "--quick"}, "a trainer has no such profile");
  refused({"sampler", "--context", "0", "--quick"}, "--context");
  refused({"sampler", "--threads", "0", "--quick"}, "--threads");
  // Refused at once, without --quick as well: the ceilings are measured afterwards.
  refused({"sampler", "--shape", "2M"}, "did you mean '25M'?");
  refused({"kernels", "--profile", "bf17"}, "did you mean 'bf16'?");
  refused({"weights", "--shape", "2M"}, "did you mean '25M'?");
  // Options that would do nothing.
  refused({"weights", "--batch", "4"}, "takes no --batch");
  refused({"kernels", "--shape", "1M"}, "takes no --shape");
  refused({"sampler", "--only", "head"}, "takes no --only");
  refused({"trainer", "--batch", "4"}, "takes no --batch");
  refused({"run", "x.toml", "--threads", "2"}, "takes no --threads");
  refused({"run", "x.toml", "--quick"}, "takes no --quick");
  refused({"run", "x.toml", "--rows-only"}, "takes no --rows-only");
  // 6.6 GiB of keys and values, more than a case may take.
  refused({"sampler", "--quick", "--rows-only", "--profile", "bf16", "--batch", "65536"}, "is left out");
  refused({"run"}, "no experiment");
  refused({"run", "none.toml"}, "none.toml");
}

TEST_CASE("a spread is the median with the least and the largest") {
  CHECK(spread_of({}).median == 0.0);
  CHECK(spread_of({3.0}).high == 3.0);
  const Spread odd = spread_of({5.0, 1.0, 3.0});
  CHECK((odd.median == 3.0 && odd.low == 1.0 && odd.high == 5.0));
  CHECK(spread_of({4.0, 1.0, 2.0, 8.0}).median == 3.0);
}

TEST_CASE("a roofline share takes the smaller of both ceilings") {
  const Ceilings ceilings{{{1, 100.0, 10.0}}, 0, 0, false};
  BenchRow row;
  row.seconds.median = 2.0;
  row.flop = 100.0;  // at least 1 s
  row.bytes = 5.0;   // at least 0.5 s
  CHECK(roofline_share(row, ceilings) == 0.5);
  row.bytes = 20.0;
  CHECK(roofline_share(row, ceilings) == 1.0);
  row.threads = 2;
  CHECK(roofline_share(row, ceilings) == 0.0);
}

TEST_CASE("cases take turns, each as often as asked, and keep their order") {
  std::string turns;
  const auto make = [&](char name) {
    BenchCase c;
    c.row.name = std::string(1, name);
    c.timed = [&turns, name] { return turns += name, name == 'a' ? 1.0 : 2.0; };
    return c;
  };
  const std::vector<BenchRow> rows = run_cases({make('a'), make('b')}, {0.0, 3});
  CHECK(turns == "ababab");
  CHECK((rows.at(0).name == "a" && rows.at(1).seconds.median == 2.0));
}

}  // namespace motley::app
