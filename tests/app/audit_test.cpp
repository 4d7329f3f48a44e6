// `motley audit` as a user runs it: what it prints is enough to compute its figures elsewhere, and a wrong problem is
// refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/audit_problem.h"
#include "app/input_error.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

using nlohmann::json;

json audited(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "audit");
  arguments.push_back("--json");
  const Ended ended = run_binary(folder, arguments);
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  return json::parse(ended.out);
}

std::string printed(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"audit", "--print-problem"});
  const Ended ended = run_binary(folder, arguments);
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  return ended.out;
}

const std::vector<std::string> kSmall{"--vocabulary", "3", "--length", "3"};
std::vector<std::string> small(std::vector<std::string> more) {
  more.insert(more.end(), kSmall.begin(), kSmall.end());
  return more;
}

/// Of `tis` at cap 2, from the printed problem alone: squared bias and variance of one sequence, relative.
std::pair<double, double> recomputed(const json& problem) {
  const auto width = problem["vocabulary"].get<size_t>();
  std::map<std::vector<int>, size_t> row;
  for (size_t i = 0; i < problem["prefixes"].size(); ++i) row[problem["prefixes"][i]["tokens"]] = i;
  std::vector<double> exact(row.size() * width, 0.0), mean = exact;
  std::vector<std::pair<double, std::vector<double>>> estimates;
  for (const json& sequence : problem["rewards"]) {
    double log_p = 0.0, log_q = 0.0;
    std::vector<double> score(exact.size(), 0.0), estimate = score;
    std::vector<int> prefix;
    for (const int y : sequence["tokens"]) {
      const json& at = problem["prefixes"][row.at(prefix)];
      const size_t begin = row.at(prefix) * width;
      const double p = at["log_p"][y], q = at["log_q"][y], w = std::min(2.0, std::exp(p - q));
      log_p += p, log_q += q;
      for (size_t v = 0; v < width; ++v) {
        const double s = (static_cast<int>(v) == y) - std::exp(at["log_p"][v].get<double>());
        score[begin + v] += s, estimate[begin + v] += w * s;
      }
      prefix.push_back(y);
    }
    const double a = sequence["reward"].get<double>() - problem["baseline"].get<double>();
    for (size_t k = 0; k < exact.size(); ++k) {
      exact[k] += std::exp(log_p) * a * score[k];
      estimate[k] *= a;
      mean[k] += std::exp(log_q) * estimate[k];
    }
    estimates.emplace_back(std::exp(log_q), estimate);
  }
  const auto product = [&](const std::vector<double>& x, const std::vector<double>& y) {
    double total = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!problem.contains("gram")) total += x[i] * y[i];
      for (size_t j = 0; problem.contains("gram") && j < y.size(); ++j) {
        total += x[i] * y[j] * problem["gram"][i][j].get<double>();
      }
    }
    return total;
  };
  std::vector<double> difference = mean;
  for (size_t k = 0; k < mean.size(); ++k) difference[k] -= exact[k];
  double second = 0.0;
  for (const auto& [q, g] : estimates) second += q * product(g, g);
  const double norm = product(exact, exact);
  return {product(difference, difference) / norm, (second - product(mean, mean)) / norm};
}

/// The tables of docs/audit.md: a comment that names the command, the table, a closing comment.
struct Block {
  std::string command, table;
  size_t begin = 0, end = 0;  // of the table in the page
};
const std::filesystem::path kPage = std::filesystem::path(MOTLEY_SOURCE_DIR) / "docs/audit.md";

std::string page_text() {
  std::ifstream in(kPage);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Block> blocks(const std::string& page) {
  const std::string open = "<!-- motley ", close = "<!-- end -->";
  std::vector<Block> found;
  for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    const size_t end_of_command = page.find(" -->\n", at), end = page.find(close, at);
    REQUIRE(end != std::string::npos);
    const size_t begin = end_of_command + 5;
    found.push_back({page.substr(at + open.size(), end_of_command - at - open.size()), page.substr(begin, end - begin),
                     begin, end});
    at = end;
  }
  return found;
}

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream in(command);
  return {std::istream_iterator<std::string>(in), {}};
}

/// The first column of every line, and the whole header.
std::vector<std::string> frame_of(const std::string& table) {
  std::vector<std::string> frame;
  std::istringstream in(table);
  for (std::string line; std::getline(in, line);) {
    frame.push_back(frame.empty() ? line : line.substr(0, line.find('|', 1)));
  }
  return frame;
}

}  // namespace

TEST_CASE("audit: the tables of docs/audit.md have every correction and mismatch of their commands") {
  const TemporaryFolder folder;
  const std::vector<Block> found = blocks(page_text());
  CHECK(found.size() >= 2);
  for (const Block& block : found) {
    std::vector<std::string> words = words_of(block.command);
    const auto problems = std::find(words.begin(), words.end(), "--problems");
    REQUIRE(problems != words.end());
    *(problems + 1) = "1";
    for (const char* option : {"--vocabulary", "--length", "--sampled-batches"}) {
      const auto place = std::find(words.begin(), words.end(), option);
      if (place != words.end()) words.erase(place, place + 2);
    }
    words.insert(words.end(), {"--vocabulary", "3", "--length", "2", "--sampled-batches", "40"});
    const Ended ended = run_binary(folder, words);
    CAPTURE(block.command, ended.err);
    REQUIRE(ended.code == 0);
    CHECK(frame_of(ended.out) == frame_of(block.table));
  }
}

TEST_CASE("writes the tables of docs/audit.md", "[.write-audit]") {
  const TemporaryFolder folder;
  std::string page = page_text();
  std::vector<Block> found = blocks(page);
  for (auto block = found.rbegin(); block != found.rend(); ++block) {
    const Ended ended = run_binary(folder, words_of(block->command));
    CAPTURE(block->command, ended.err);
    REQUIRE(ended.code == 0);
    page.replace(block->begin, block->end - block->begin, ended.out);
  }
  std::ofstream(kPage) << page;
}

TEST_CASE("audit: what --print-problem writes gives the same figures, here and computed elsewhere") {
  const TemporaryFolder folder;
  const std::string policy = GENERATE("table", "transformer");
  const std::vector<std::string> made =
      small({"--policy", policy, "--mismatch", "nvfp4+stale=8+noise=0.6", "--seed", "5"});
  folder.write("problem.json", printed(folder, made));
  const json problem = json::parse(folder.read("problem.json"));
  CHECK(problem.contains("gram") == (policy == "transformer"));

  std::vector<std::string> direct = made;
  direct.insert(direct.end(), {"--problems", "1"});
  const json here = audited(folder, direct), again = audited(folder, {"--problem", "problem.json"});
  const json &rows = here["levels"][0]["corrections"], &rows_again = again["levels"][0]["corrections"];
  REQUIRE(rows.size() == rows_again.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]["exact"] == true) CHECK(rows[i] == rows_again[i]);  // what is sampled depends on the seed
  }
  CHECK(here["levels"][0]["kl"] == again["levels"][0]["kl"]);

  const json tis = audited(folder, {"--problem", "problem.json", "--correction", "tis", "--batch", "16"});
  const json& figures = tis["levels"][0]["corrections"][0];
  const auto [bias, variance] = recomputed(problem);
  CHECK(figures["exact"] == true);
  CHECK(figures["bias"]["value"].get<double>() == Approx(bias).epsilon(1e-9));
  CHECK(figures["variance"]["value"].get<double>() == Approx(variance / 16).epsilon(1e-9));
  CHECK(bias > 1e-3);
}

TEST_CASE("audit: the same bits every time, and every correction at every mismatch of the ladder") {
  const TemporaryFolder folder;
  const json all = audited(folder, small({"--problems", "2", "--sampled-batches", "40", "--batch", "8"}));
  CHECK(all == audited(folder, small({"--problems", "2", "--sampled-batches", "40", "--batch", "8"})));
  CHECK(all["levels"].size() == 5);
  for (const json& level : all["levels"]) {
    CHECK(level["kl"].get<double>() > 0.0);
    CHECK(level["corrections"].size() >= 5);
    for (const json& row : level["corrections"]) {
      CAPTURE(level["mismatch"], row["correction"]);
      for (const char* name : {"bias", "variance", "error", "cosine", "drift_up", "drift_down", "masked"}) {
        CHECK(row[name]["value"].is_number());  // NaN and infinity would be null
        CHECK(row[name].contains("half_width") == !row["exact"].get<bool>());
      }
    }
  }
}

TEST_CASE("audit: problems whose rewards within reach are all equal are left out and counted") {
  const TemporaryFolder folder;
  const json report = audited(folder, small({"--mismatch", "nvfp4+stale=8+top-p=0.8", "--correction", "grpo"}));
  CHECK(report["levels"][0]["left_out"] == 3);
  CHECK(report["levels"][0]["corrections"][0]["bias"]["value"].get<double>() < 10.0);
}

TEST_CASE("audit: parameters reach the corrections that have them") {
  const TemporaryFolder folder;
  const auto bias = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = small({"--problems", "1", "--mismatch", "noise=1"});
    words.insert(words.end(), more.begin(), more.end());
    return audited(folder, words)["levels"][0]["corrections"][0]["bias"]["value"].get<double>();
  };
  // Without a cap in reach it is token-is.
  const double plain = bias({"--correction", "tis"});
  CHECK(bias({"--correction", "tis", "--set", "tis.cap=1e6"}) == bias({"--correction", "token-is"}));
  CHECK(bias({"--correction", "tis", "--set", "tis.cap=2"}) == plain);
  CHECK(bias({"--correction", "tis", "--set", "tis.cap=1.1"}) != plain);
}

TEST_CASE("audit: plot and Markdown table name every correction and mismatch") {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments =
      small({"audit", "--problems", "1", "--sampled-batches", "40", "--batch", "8", "--table", "--correction", "sc+mis",
             "--correction", "tis", "--mismatch", "nvfp4", "--mismatch", "noise=1"});
  for (const std::string name : {"plot.html", "plot.svg"}) {
    std::vector<std::string> words = arguments;
    words.insert(words.end(), {"--plot", name});
    const Ended ended = run_binary(folder, words);
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
    CHECK(ended.out.find("| correction | nvfp4 | noise=1 |") == 0);
    const std::string plot = folder.read(name);
    for (const std::string& text : {ended.out, plot}) {
      CHECK(text.find("sc+mis") != std::string::npos);
      CHECK(text.find("tis") != std::string::npos);
    }
    CHECK(plot.find(name == "plot.svg" ? "<svg xmlns=" : "<!doctype html>") == 0);
    CHECK(plot.find("nan") == std::string::npos);
    CHECK(plot.find("http-equiv") == std::string::npos);
  }
}

TEST_CASE("audit: a wrong problem or option is refused with what is wrong and where") {
  const TemporaryFolder folder;
  const json good = json::parse(printed(folder, {"--vocabulary", "4", "--length", "3", "--mismatch", "top-p=0.9"}));
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    std::vector<std::string> words{"audit"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    require_refused(run_binary(folder, words), part);
  };
  const auto refused_file = [&](const std::string& text, const std::string& part) {
    const std::string file = folder.write("bad.json", text).string();
    try {
      read_problem(file);
      FAIL("read without an error, but wanted: " << part);
    } catch (const InputError& error) {
      const std::string message = error.what();
      CAPTURE(message);
      CHECK(message.starts_with(file + ": error: "));
      CHECK(message.find(part) != std::string::npos);
      CHECK(message.find('\n') == std::string::npos);
      CHECK(message.size() < 1000);
    }
  };
  const auto changed = [&](const std::string& pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    return bad.dump();
  };
  folder.write("good.json", good.dump());
  CHECK(run_binary(folder, {"audit", "--problem", "good.json", "--correction", "grpo"}).code == 0);
  size_t cut = 0;  // a prefix with something cut off
  while (good["prefixes"][cut]["candidates"].size() != 2) ++cut;
  const std::string first = "/prefixes/" + std::to_string(cut);
  const auto kept = good["prefixes"][cut]["candidates"][0].get<size_t>();

  refused_file("", "no JSON");
  refused_file("{\"format\": 1e999}", "no JSON");
  refused_file(std::string(200000, '['), "no JSON");
  refused_file("[]", "an object is wanted");
  refused_file(changed("/format", "other"), "format");
  refused_file(changed("/vocabulary", 1), "vocabulary");
  refused_file(changed("/vocabulary", 5), "a list of 5 is wanted");
  refused_file(changed("/length", 16), "length");
  refused_file(changed("/length", uint64_t{1} << 63), "length");
  refused_file(changed("/end", 4), "end");
  refused_file(changed("/extra", 1), "unknown key \"extra\"");
  refused_file(changed("/baseline", "x"), "baseline");
  refused_file(changed("/prefixes/0/log_p/0", 0.5), "which is no log-probability");
  refused_file(changed("/prefixes/0/log_p/0", -0.7), "sum to");
  refused_file(changed("/prefixes/0/log_p/0", "a"), "prefixes[0].log_p[0]: a number is wanted");
  refused_file(changed("/prefixes/0/log_p", json::array({0.0})), "prefixes[0].log_p: a list of 4");
  refused_file(changed("/prefixes/1/tokens", json::array()), "stands there twice");
  refused_file(changed("/prefixes/1/tokens", json::array({7})), "prefixes[1].tokens[0]");
  refused_file(changed(first + "/candidates", json::array({kept})), "has mass, but the id is no candidate");
  refused_file(changed(first + "/candidates", json::array()), "no candidates");
  refused_file(changed(first + "/candidates", json::array({-1})), "candidates[0]");
  refused_file(changed(first + "/log_q/" + std::to_string(kept), nullptr), "sum to");
  refused_file(changed("/rewards/0/reward", nullptr), "rewards[0].reward: a number is wanted");
  refused_file(changed("/gram", json::array({1.0})), "gram: a list of");
  refused_file(changed("/gram/0/1", 1e9), "gram[1][0] is no inner product");
  json fewer = good;
  fewer["rewards"].erase(0);
  refused_file(fewer.dump(), "is missing");
  json equal = good;
  for (json& sequence : equal["rewards"]) sequence["reward"] = 0.25;
  folder.write("equal.json", equal.dump());
  refused({"--problem", "equal.json"}, "the exact gradient is 0");
  folder.write("bad.json", changed("/length", 16));
  refused({"--problem", "bad.json"}, "bad.json: error: vocabulary and length make more than 20000 sequences");

  refused({"--problem", "absent.json"}, "cannot be read");
  refused({"--problem", "."}, "is a folder");
  refused({"--problem", "good.json", "--length", "3"}, "--length makes a problem");
  refused({"--correction", "tiss"}, "tis");
  refused({"--correction", "tis+mis"}, "tis");
  refused({"--correction", "tis", "--set", "mis.low=0.1"}, "no correction of this audit has a parameter 'mis.low'");
  refused({"--correction", "tis", "--set", "tis.cap=x"}, "tis.cap");
  refused({"--correction", "tis", "--set", "tis.cap=-1"}, "tis.cap");
  refused({"--correction", "tis", "--set", "tis.cap"}, "KEY=VALUE");
  refused({"--correction", "tis", "--set", "tis.cap=nan"}, "tis.cap");
  refused({"--baseline", "nan"}, "--baseline: Value nan not in range");
  refused({"--mismatch", "nvfp5"}, "nvfp4");
  refused({"--mismatch", "stale=17"}, "0 to 16");
  refused({"--mismatch", "stale=2+stale=3"}, "twice");
  refused({"--mismatch", "noise=nan"}, "noise needs");
  refused({"--mismatch", "top-p=0"}, "top-p needs");
  refused({"--mismatch", "stale=9", "--steps-since-old", "8"}, "together");
  refused({"--vocabulary", "16", "--length", "16"}, "more than 20000 sequences");
  refused({"--vocabulary", "8", "--length", "4", "--no-end"}, "make 4680 pairs of a prefix and a token");
  refused({"--policy", "tree"}, "allowed: table, transformer");
  refused({"--plot", "x.png"}, "FILE.html");
  refused({"--plot", "absent/x.svg"}, "--plot absent/x.svg: error: there is no folder 'absent'");
  std::filesystem::create_directory(folder / "x.svg");
  refused({"--plot", "x.svg"}, "is there already, and no regular file");
  refused({"--print-problem", "--mismatch", "fp8", "--mismatch", "bf16"}, "one --mismatch");
}

}  // namespace motley::app
