// What ships runs: every experiment, every correction by name, every command of the documentation.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "app/schema.h"
#include "envs/sandbox/support.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MOTLEY_SOURCE_DIR;
/// Small enough for a test, whatever the experiment.
const std::vector<std::string> kSmall{
    "run.updates=2",  "run.concurrency=32", "warmstart.steps=40", "warmstart.batch=32", "warmstart.lr=1e-2",
    "algo.prompts=4", "model.layers=1",     "model.width=32",     "eval.prompts=2",     "trainer.warmup_updates=0"};

/// In sandboxes every demonstration and every episode costs tens of milliseconds.
const std::vector<std::string> kFewSandboxes{"warmstart.demonstrations=16", "tasks.repository.count=40",
                                             "algo.prompts=2", "algo.group_size=2", "run.concurrency=8"};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<nlohmann::json> rows_of(const std::string& jsonl) {
  std::vector<nlohmann::json> rows;
  std::istringstream in(jsonl);
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream in(command);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

struct Documented {
  std::string page, command;
};

/// Every `motley ...` of README.md and docs/*.md: lines of fenced blocks, and code spans inside text.
std::vector<Documented> documented_commands() {
  std::vector<fs::path> pages{kSource / "README.md"};
  for (const auto& entry : fs::directory_iterator(kSource / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  std::vector<Documented> found;
  static const std::regex span("`(motley [^`]*)`");
  for (const fs::path& page : pages) {
    std::istringstream in(text_of(page));
    bool fenced = false;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("```")) fenced = !fenced;
      const std::string command = line.starts_with("$ ") ? line.substr(2) : line;
      if (fenced && command.starts_with("motley ")) {
        found.push_back({page.filename().string(), command.substr(0, command.find(" #"))});
      }
      if (fenced) continue;
      for (std::sregex_iterator match(line.begin(), line.end(), span), end; match != end; ++match)
        found.push_back({page.filename().string(), std::regex_replace((*match)[1].str(), std::regex("\\\\\\|"), "|")});
    }
  }
  return found;
}

/// A line of usage, with names to fill in, is not a command: its options must be those of the command's help.
bool is_usage(const std::string& command) {
  return command.find_first_of("[<|") != std::string::npos ||
         std::regex_search(command, std::regex(" [A-Z]+(:[A-Z]+|\\.[a-z]+)?( |$)"));
}

}  // namespace

TEST_CASE("every experiment that ships runs") {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(kSource / "experiments")) {
    if (entry.path().extension() != ".toml") continue;
    const TemporaryFolder folder;
    const std::string name = entry.path().stem().string();
    std::vector<std::string> sets = kSmall;
    if (name == "bash_agent") {
      if (!envs::examine_sandboxes().works) {
        WARN("SKIPPED: " << name << ", this machine makes no sandboxes");
        continue;
      }
      sets.insert(sets.end(), kFewSandboxes.begin(), kFewSandboxes.end());
    }
    const Ended ended = run_binary(folder, run_arguments(entry.path().string(), sets));
    CAPTURE(name, ended.err);
    REQUIRE(ended.code == 0);
    size_t rows = 0;
    for (const auto& run : fs::directory_iterator(folder / "runs")) {
      if (!fs::exists(run.path() / "metrics.jsonl")) continue;
      rows = rows_of(text_of(run.path() / "metrics.jsonl")).size();
      CHECK(fs::exists(run.path() / "checkpoints/step-2/model.safetensors"));
    }
    CHECK(rows == 3);
    ++count;
  }
  CHECK(count >= 3);
}

TEST_CASE("the quickstart runs with a correction of every kind and scope") {
  for (const std::string name : {"grpo", "sc+mis", "seq-tis+veto", "ais", "gspo", "decoupled"}) {
    const TemporaryFolder folder;
    std::vector<std::string> sets = kSmall;
    sets.push_back("algo.correction=" + name);
    if (algos::make_correction(name)->clips_against_old()) sets.emplace_back("algo.minibatches=2");
    const Ended ended = run_binary(folder, run_arguments((kSource / "experiments/quickstart.toml").string(), sets));
    CAPTURE(name, ended.err);
    REQUIRE(ended.code == 0);
    CHECK(folder.read("runs/quickstart-0/experiment.toml").find("correction = \"" + name + "\"") != std::string::npos);
    CHECK(rows_of(folder.read("runs/quickstart-0/metrics.jsonl")).size() == 3);
  }
}

TEST_CASE("bitwise.toml: no mismatch at all, for every trainer, temperature and truncation, alone and in a batch") {
  const std::string profile = GENERATE("fp32", "bf16", "fp16");
  const auto [temperature, top_p] =
      GENERATE(table<std::string, std::string>({{"1.0", "0.95"}, {"0.6", "0.7"}, {"0.6", "1.0"}}));
  CAPTURE(profile, temperature, top_p);
  std::string alone;
  for (const std::string slots : {"1", "7"}) {
    const TemporaryFolder folder;
    std::vector<std::string> sets = kSmall;
    for (const std::string& set :
         {"trainer.profile=" + profile, "sampling.temperature=" + temperature, "sampling.top_p=" + top_p,
          "samplers.trainer.max_sequences=" + slots, std::string("trainer.lr=1e-2"),
          std::string("tasks.arithmetic.digits=1"), std::string("warmstart.steps=80"), std::string("algo.prompts=8"),
          std::string("algo.group_size=8")}) {
      sets.push_back(set);
    }
    const Ended ended = run_binary(folder, run_arguments((kSource / "experiments/bitwise.toml").string(), sets));
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
    const std::string metrics = folder.read("runs/bitwise-0/metrics.jsonl");
    const std::vector<nlohmann::json> rows = rows_of(metrics);
    REQUIRE(rows.size() == 3);
    for (size_t update = 1; update < rows.size(); ++update) {
      CHECK(rows[update].at("kl/sampler_trainer") == 0.0);
      CHECK(rows[update].at("kl/k3") == 0.0);
      CHECK(rows[update].at("ratio/max") == 1.0);
    }
    CHECK(rows[1].contains("grad_norm"));  // the second update has other weights
    if (alone.empty()) alone = clockless(metrics);
    CHECK((clockless(metrics) == alone));
  }
}

TEST_CASE("three prompts, ten updates: the next epochs begin") {
  const TemporaryFolder folder;
  folder.write("three.jsonl",
               "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n{\"prompt\": \"1+2=\", \"answer\": \"3\"}\n"
               "{\"prompt\": \"2+2=\", \"answer\": \"4\"}\n");
  folder.write("x.toml",
               "name = \"three\"\nrun.async = false\n[[tasks]]\nenv = \"jsonl\"\npath = \"three.jsonl\"\n"
               "[[samplers]]\nname = \"a\"\n");
  std::vector<std::string> sets = kSmall;
  sets[0] = "run.updates=10";
  sets.push_back("sampling.max_tokens=4");
  const bool async = GENERATE(false, true);
  if (async) sets.insert(sets.end(), {"run.async=true", "algo.correction=sc+mis"});
  const Ended ended = run_binary(folder, run_arguments("x.toml", sets));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(rows_of(folder.read("runs/three-0/metrics.jsonl")).size() == 11);
}

TEST_CASE("a warm start may have a single step") {
  const TemporaryFolder folder;
  std::vector<std::string> sets = kSmall;
  sets.push_back("warmstart.steps=1");
  CHECK(run_binary(folder, run_arguments((kSource / "experiments/bitwise.toml").string(), sets)).code == 0);
}

TEST_CASE("every command of README.md and docs runs, every usage names options that exist") {
  const TemporaryFolder folder;
  fs::create_directory_symlink(kSource / "experiments", folder / "experiments");
  size_t run = 0, usages = 0;
  std::set<std::string> seen;
  for (const auto& [page, command] : documented_commands()) {
    if (!seen.insert(command).second) continue;
    CAPTURE(page, command);
    std::vector<std::string> words = words_of(command);
    words.erase(words.begin());
    if (is_usage(command)) {
      if (words[0].starts_with("-")) continue;
      const std::string help = run_binary(folder, {words[0], "--help"}).out;
      CHECK(help.find("Usage: motley") != std::string::npos);
      for (std::string word : words) {
        word.erase(0, word.find_first_not_of("["));
        const std::string option = word.substr(0, word.find_first_of("]=."));
        if (option.starts_with("-")) CHECK(help.find(option) != std::string::npos);
      }
      ++usages;
      continue;
    }
    if (words[0] == "bench" && words[1] != "run") words.push_back("--quick");
    if (command == "motley audit") {  // every correction at every distance: one small problem of each
      for (const char* word : {"--problems", "1", "--vocabulary", "3", "--length", "2", "--sampled-batches", "40"})
        words.emplace_back(word);
    }
    if (words[0] == "mismatch") words.insert(words.end(), {"--responses", "8"});
    if ((words[0] == "run" || command.starts_with("motley bench run ")) &&
        std::find(words.begin(), words.end(), "--resume") == words.end())
      for (const std::string& set : kSmall) words.insert(words.end(), {"--set", set});
    const Ended ended = run_binary(folder, words);
    CAPTURE(ended.err);
    CHECK(ended.code == 0);
    ++run;
  }
  CHECK(run >= 4);
  CHECK(usages >= 5);
}

TEST_CASE("docs/scenarios.md names tests that exist") {
  const std::string page = text_of(kSource / "docs/scenarios.md");
  // `folder/file` and the beginnings of names of its cases: "begin ..."
  static const std::regex reference("`([a-z]+/[a-z_]+_test)`|\"([^\"]*)\"");
  std::string file, text;
  size_t files = 0, cases = 0;
  for (std::sregex_iterator match(page.begin(), page.end(), reference), end; match != end; ++match) {
    if ((*match)[1].matched) {
      file = (*match)[1];
      text = text_of(kSource / "tests" / (file + ".cpp"));
      CAPTURE(file);
      CHECK_FALSE(text.empty());
      ++files;
      continue;
    }
    std::string name = (*match)[2];
    if (name.ends_with(" ...")) name.resize(name.size() - 4);
    CAPTURE(file, name);
    CHECK(text.find("TEST_CASE(\"" + name) != std::string::npos);
    ++cases;
  }
  CHECK(files >= 40);
  CHECK(cases >= 40);
}

}  // namespace motley::app
