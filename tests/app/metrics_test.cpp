// What a run leaves and shows: metrics.jsonl, TensorBoard events, progress lines, closing table, report.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/closing_table.h"
#include "app/line_chart.h"
#include "app/metrics_writer.h"
#include "app/progress.h"
#include "app/report.h"
#include "app/tensorboard.h"
#include "tests/temporary_folder.h"

using namespace motley;
using namespace motley::app;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("a metrics line reads back as the same numbers and leaves NaN out") {
  const algos::Metrics metrics{{"a/b", 0.1}, {"c", std::nan("")}, {"d", 3.0}, {"e", 1e-300}, {"f", -0.0}};
  const std::string line = metrics_line(7, metrics);
  const auto row = nlohmann::json::parse(line);
  CHECK(row["update"] == 7);
  CHECK(row["a/b"].get<double>() == 0.1);
  CHECK_FALSE(row.contains("c"));
  CHECK(row["d"].get<double>() == 3.0);
  CHECK(row["e"].get<double>() == 1e-300);
  CHECK(nlohmann::json::parse(metrics_line(0, {{"x", std::numeric_limits<double>::infinity()}}))["x"].is_number());
}

TEST_CASE("a resume cuts metrics.jsonl after the checkpoint's update, half a line included") {
  const TemporaryFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  {
    MetricsWriter writer(file);
    for (int update = 0; update <= 4; ++update) writer.write(update, {{"x", update}});
  }
  std::ofstream(file, std::ios::app) << "{\"update\":5,\"x\"";
  { MetricsWriter(file, 3).write(4, {{"x", 40}}); }
  const std::string text = text_of(file);
  CHECK(text ==
        "{\"update\":0,\"x\":0}\n{\"update\":1,\"x\":1}\n{\"update\":2,\"x\":2}\n{\"update\":3,\"x\":3}\n"
        "{\"update\":4,\"x\":40}\n");
  std::ofstream(file) << "{\"update\":0}\n{\"update\":\"x\"}\n{\"update\":1}\n";  // damaged in the middle
  { MetricsWriter(file, 5).write(2, {}); }
  CHECK(text_of(file) == "{\"update\":0}\n{\"update\":2}\n");
}

TEST_CASE("TensorBoard records carry the checksum that TensorFlow asks for") {
  // "123456789" has CRC-32C 0xe3069283 (RFC 3720); masked: rotated right by 15, plus 0xa282ead8.
  const uint32_t crc = 0xe3069283u;
  CHECK(masked_crc32c("123456789") == ((crc >> 15 | crc << 17) + 0xa282ead8u));
  const TemporaryFolder folder_folder;
  const fs::path folder = folder_folder.path();
  { TensorBoardWriter(folder).write(1, {{"reward/mean", 0.5}}); }
  const std::string bytes = text_of(fs::directory_iterator(folder)->path());
  size_t at = 0, records = 0;
  while (at < bytes.size()) {
    REQUIRE(bytes.size() - at >= 16);
    uint64_t length = 0;
    uint32_t check = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&check, bytes.data() + at + 8, 4);
    CHECK(check == masked_crc32c(std::string_view(bytes).substr(at, 8)));
    std::memcpy(&check, bytes.data() + at + 12 + length, 4);
    CHECK(check == masked_crc32c(std::string_view(bytes).substr(at + 12, length)));
    at += 16 + length;
    ++records;
  }
  CHECK(records == 2);
  CHECK(bytes.find("reward/mean") != std::string::npos);
}

TEST_CASE("progress is one line per update off a terminal, and a block per update on one") {
  Experiment experiment;
  experiment.name = "trial";
  experiment.run.updates = 10;
  experiment.samplers = {{.name = "fast", .profile = "b200-nvfp4"}, {.name = "slow", .profile = "a100-bf16"}};
  const algos::Metrics metrics{{"reward/mean", 0.25}, {"group/fast/share", 0.5}, {"eval/pass_at_1", 0.75}};

  Progress plain(experiment, false, {});
  const std::string line = plain.update(3, metrics);
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  CHECK(line.find("reward 0.250") != std::string::npos);
  CHECK(line.find("pass@1 0.750") != std::string::npos);
  CHECK(line.find('\x1b') == std::string::npos);
  // Time left comes from the updates alone: none are known to have taken any time before the first row.
  CHECK(line.find("left -") != std::string::npos);
  CHECK(plain.update(4, metrics).find("left -") != std::string::npos);
  CHECK(plain.update(5, metrics).find("left 0m00s") != std::string::npos);

  Progress terminal(experiment, true, {60, 24});
  const std::string first = terminal.update(3, metrics), second = terminal.update(4, metrics);
  CHECK(std::count(first.begin(), first.end(), '\n') == 5);  // bar, totals, names of the columns, two groups
  CHECK(second.rfind("\x1b[5F", 0) == 0);                    // goes back over the block it replaces
  std::istringstream rows(first);
  for (std::string row; std::getline(rows, row);) CHECK(row.size() <= 60);

  // A message takes the block's place: the next block must not erase it.
  CHECK(terminal.message("a note").rfind("\x1b[5F\x1b[Ja note\n", 0) == 0);
  CHECK(terminal.update(5, metrics).find('\x1b') == std::string::npos);

  Progress warming(experiment, true, {60, 24});
  CHECK(warming.warm_start(1, 2, 0.5, false).find('\n') == std::string::npos);
  CHECK(warming.end() == "\n");
  CHECK(warming.end().empty());
}

TEST_CASE("the display and the closing table fit on a terminal of 80 columns") {
  Experiment experiment;
  experiment.run.updates = 1000;
  actors::RunSummary summary;
  algos::Metrics metrics{{"reward/mean", 0.25},
                         {"kl/sampler_trainer", -0.01234},
                         {"entropy", 1.5},
                         {"staleness/mean", 12.5},
                         {"time/tokens_per_second", 123456.0}};
  for (const std::string profile : {"b200-nvfp4-w4a4", "rtxpro6000-bf16"}) {
    experiment.samplers.push_back({.name = profile, .profile = profile});
    summary.groups.push_back({.name = "group", .profile = profile, .emulated = true, .share = 1.0, .kl = -0.01234});
    summary.groups.back().tokens_per_second = 123456;
    summary.groups.back().cost = 12.3456;
    const std::string prefix = "group/" + profile + "/";
    metrics.insert({{prefix + "kl/sampler_trainer", -0.01234},
                    {prefix + "ratio/outside", 0.125},
                    {prefix + "staleness/mean", 12.5},
                    {prefix + "time/tokens_per_second", 123456.0}});
  }
  Progress usual(experiment, true, {});
  for (const std::string& text : {usual.update(3, metrics), closing_table(summary)}) {
    CAPTURE(text);
    CHECK(text.find("staleness") != std::string::npos);
    std::istringstream rows(text);
    std::string row;
    std::getline(rows, row);  // the bar takes what there is
    CHECK(text.find("123456") != std::string::npos);
    while (std::getline(rows, row)) CHECK(row.size() <= 80);
  }
  // The longest name of a profile is whole where there is room.
  experiment.samplers.back().profile = "h100-fp8-channel-accumulate14";
  Progress wide(experiment, true, {100, 24});
  CHECK(wide.update(3, metrics).find(" h100-fp8-channel-accumulate14\n") != std::string::npos);
}

TEST_CASE("the closing table marks emulated rates") {
  actors::RunSummary summary;
  summary.groups = {
      {.name = "b200", .profile = "b200-nvfp4", .emulated = true, .share = 0.5, .tokens_per_second = 1000},
      {.name = "local", .profile = "bf16", .share = 0.5, .tokens_per_second = 2000}};
  const std::string table = closing_table(summary);
  CHECK(table.find("1000*") != std::string::npos);
  CHECK(table.find("2000 ") != std::string::npos);
  CHECK(table.find("* emulated") != std::string::npos);
  CHECK(table.find("cost: ") == std::string::npos);  // nothing has a price
  summary.groups[1].cost = 1.5;
  summary.groups[1].cost_per_million_tokens = 2.5;
  summary.cost_per_update = 0.75;
  CHECK(closing_table(summary).find("cost: 1.5, 0.75 per update *\n") != std::string::npos);
  const std::string json = closing_json(summary, {});
  CHECK(json.find("\"cost_per_update\":0.75") != std::string::npos);
  CHECK(json.find("\"cost_per_million_tokens\":2.5") != std::string::npos);
  summary.groups[0].emulated = false;
  CHECK(closing_table(summary).find("cost: 1.5, 0.75 per update\n") != std::string::npos);
}

TEST_CASE("the closing table's columns line up under long names") {
  actors::RunSummary summary;
  summary.groups = {{.name = "a-group-of-b200", .profile = "b200-nvfp4", .emulated = true},
                    {.name = "local", .profile = "bf16"}};
  std::istringstream rows(closing_table(summary));
  std::string head, first, second;
  std::getline(rows, head), std::getline(rows, first), std::getline(rows, second);
  CHECK(first.size() == 80);
  CHECK(second.size() == 80);
  CHECK(first.find("b200-nvfp4 ") == head.find("profile"));
  CHECK(second.find("bf16") == head.find("profile"));

  // Names without room beside the numbers have a line of their own above them.
  for (const size_t length : {18u, 64u}) {
    summary.groups[0].name = std::string(length, 'x');
    summary.groups[0].profile = "h100-fp8-channel-accumulate14";
    const std::string table = closing_table(summary);
    CAPTURE(table);
    CHECK(table.find(summary.groups[0].name + (length == 18 ? "  " : "\n  ") + "h100-fp8-channel-accumulate14\n") !=
          std::string::npos);
    CHECK(table.find("\nlocal  bf16\n") != std::string::npos);
    std::istringstream lines(table);
    std::string above;
    for (std::string row; std::getline(lines, row); above = row) {
      CHECK(row.size() <= 80);
      if (above == "local  bf16") CHECK(row.size() == 80);
    }
  }
}

TEST_CASE("a curve keeps a spike that is one point among a hundred thousand") {
  ChartLine line{"x", {}};
  for (int i = 0; i < 100000; ++i) line.points.emplace_back(i, i == 61234 ? 1000.0 : 0.0);
  const std::string svg = line_chart_svg({.title = "spike", .lines = {line}});
  CHECK(svg.size() < 100000);
  CHECK(svg.find(",30.0 ") != std::string::npos);  // the top of the frame, where 1000 is drawn
  CHECK(line_chart_svg({.title = "none"}).empty());
  CHECK(line_chart_svg({.title = "none", .lines = {{"x", {{1.0, std::nan("")}}}}}).empty());
  CHECK(
      line_chart_svg({.title = "<script>", .lines = {{"<script>", {{1, 2.0}}}, {"y", {{1, 2.0}}}}}).find("<script>") ==
      std::string::npos);
}

TEST_CASE("alarms are named on the terminal and marked in the report") {
  Experiment experiment;
  const algos::Metrics metrics{
      {"reward/mean", 0.25}, {"alarm/grad_norm", 0.0}, {"alarm/kl", 1.0}, {"alarm/reward", 1.0}};
  Progress plain(experiment, false, {}), terminal(experiment, true, {});
  CHECK(plain.update(3, metrics).find("  alarm kl, reward\n") != std::string::npos);
  CHECK(terminal.update(3, metrics).find("\nalarm: kl, reward\n") != std::string::npos);
  CHECK(plain.update(4, {{"alarm/kl", 0.0}}).find("alarm") == std::string::npos);

  const TemporaryFolder folder_folder;
  const fs::path folder = folder_folder.path();
  std::ofstream rows(folder / "metrics.jsonl");
  for (int update = 0; update <= 20; ++update) {
    const bool kl = (update >= 5 && update <= 7) || update == 12;
    rows << "{\"update\":" << update << ",\"alarm/kl\":" << kl << ",\"alarm/reward\":0,\"staleness/0-1/kl/k3\":0.5"
         << ",\"staleness/6+/kl/k3\":0.25,\"staleness/mean\":1,\"group/a/probe/kl/k3\":2"
         << ",\"probe/kl/mismatch\":0.5,\"group/a/probe/kl/mismatch\":1,\"drift/sc+mis/squared_norm\":0.125}\n";
  }
  rows.close();
  std::ofstream(folder / "experiment.toml") << "name = \"trial\"\n";
  write_report(folder, {});
  const std::string page = text_of(folder / "report.html");
  CHECK(page.find("<li>kl: updates 5 to 7, 12 to 12</li>") != std::string::npos);
  CHECK(page.find("<li>reward") == std::string::npos);
  CHECK(page.find("kl/k3 by versions since the draw") != std::string::npos);
  CHECK(page.find("mismatch by group, without staleness") != std::string::npos);
  CHECK(page.find("KL told apart by the probe") != std::string::npos);
  CHECK(page.find("drift of corrections") != std::string::npos);
  CHECK(page.find(">0-1</tspan>") != std::string::npos);
  CHECK(page.find(">6+</tspan>") != std::string::npos);
  CHECK(page.find("kl/k3 by group") == std::string::npos);  // nothing is called group/<name>/kl/k3
  const std::string svg = line_chart_svg({.title = "x", .lines = {{"x", {{0, 1.0}, {20, 2.0}}}}, .marks = {5, 12, 99}});
  CHECK(std::count(svg.begin(), svg.end(), '\n') == 0);
  size_t marks = 0;
  for (size_t at = 0; (at = svg.find("class='mark'", at)) != std::string::npos; ++at) ++marks;
  CHECK(marks == 2);
}

TEST_CASE("the report is one page without references to anything outside it") {
  const TemporaryFolder folder_folder;
  const fs::path folder = folder_folder.path();
  std::ofstream(folder / "experiment.toml") << "name = \"<b>\"\n";
  std::ofstream(folder / "metrics.jsonl")
      << "{\"update\":0,\"eval/pass_at_1\":0.5}\n{\"update\":1,\"reward/mean\":0.25}\n";
  write_report(folder, {});
  const std::string page = text_of(folder / "report.html");
  CHECK(page.find("reward/mean") != std::string::npos);
  CHECK(page.find("&lt;b&gt;") != std::string::npos);
  CHECK(page.find("http") == std::string::npos);
  CHECK(page.find("src=") == std::string::npos);
}
