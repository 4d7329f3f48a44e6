// The binary itself: exit codes, one message on stderr, nothing but results on stdout, nothing left behind.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

Ended motley(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  return run_binary(folder, arguments);
}

const std::string kTiny = R"(name = "tiny"
[run]
updates = 3
async = false
)" + model_section(16) + R"([[tasks]]
env = "arithmetic"
digits = 1
[sampling]
max_tokens = 4
[algo]
correction = "sc+mis"
prompts = 2
group_size = 2
[[samplers]]
name = "a"
profile = "h100-fp8"
max_sequences = 4
[eval]
prompts = 4
samples = 1
k = [1]
)";

}  // namespace

TEST_CASE("help, version and the lists") {
  const TemporaryFolder folder;
  CHECK(motley(folder, {"--version"}).out == "motley 0.1.0\n");
  for (const std::vector<std::string>& help : std::vector<std::vector<std::string>>{{"--help"}, {"run", "--help"}}) {
    const Ended outcome = motley(folder, help);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find("Usage: motley") != std::string::npos);
  }
  for (const char* what : {"envs", "formats", "models", "profiles", "recipes"}) {
    CAPTURE(what);
    const Ended outcome = motley(folder, {"list", what});
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    const auto json = nlohmann::json::parse(motley(folder, {"list", what, "--json"}).out);
    const auto lines = std::count(outcome.out.begin(), outcome.out.end(), '\n');
    CHECK(json.at(what).size() == static_cast<size_t>(lines));
    CHECK(lines >= 3);
  }
  CHECK(motley(folder, {"doctor"}).code == 0);
  CHECK(nlohmann::json::parse(motley(folder, {"doctor", "--json"}).out).contains("processor"));
}

TEST_CASE("a wrong command line ends with exit code 2 and one message") {
  const TemporaryFolder folder;
  require_refused(motley(folder, {}), "motley --help");
  require_refused(motley(folder, {"evla"}), "unknown command 'evla'; allowed: run");
  require_refused(motley(folder, {"evla"}), "did you mean 'eval'?");
  require_refused(motley(folder, {"--versio"}), "did you mean '--version'?");
  require_refused(motley(folder, {"run", "--dryrun"}), "did you mean '--dry-run'?");
  require_refused(motley(folder, {"run", "a", "b"}), "unexpected argument 'b'");
  require_refused(motley(folder, {"run"}), "no experiment");
  require_refused(motley(folder, {"run", "none.toml"}), "none.toml: error: cannot be read");
  require_refused(motley(folder, {"run", "--resume", "none"}), "no run folder");
  require_refused(motley(folder, {"list"}), "required");
  require_refused(motley(folder, {"list", "profile"}), "did you mean 'profiles'?");
  require_refused(motley(folder, {"generate", "none", "--prompt", "1"}), "no checkpoint there");
  require_refused(motley(folder, {"generate", "none", "--prompt", "1", "--profile", "bf17"}), "did you mean 'bf16'?");
  require_refused(motley(folder, {"generate", "none"}), "--prompt is required");
  require_refused(motley(folder, {"generate", "none", "--prompt", "1", "--top-p", "2"}), "--top-p");
  for (const char* option : {"--temperature", "--top-p"}) {
    for (const char* value : {"nan", "NAN", "inf", "-1", "1e9", "x"}) {
      CAPTURE(option, value);
      require_refused(motley(folder, {"generate", "none", "--prompt", "1", option, value}), option);
      require_refused(motley(folder, {"eval", "none", "--task", "arithmetic", option, value}), option);
    }
  }
  require_refused(motley(folder, {"eval", "none", "--task", "arithmetc"}), "did you mean 'arithmetic'?");
  require_refused(motley(folder, {"eval", "none", "--task", "arithmetic", "--k", "1,8", "--samples", "2"}), "pass@8");
}

TEST_CASE("a refused experiment has its position on stderr and leaves nothing") {
  const TemporaryFolder folder;
  folder.write("typo.toml", "run.async = false\n[[tasks]]\nenv = \"arithmetic\"\n[algo]\ncorection = \"mis\"\n");
  require_refused(motley(folder, {"run", "typo.toml"}), "typo.toml:5:1: error: unknown key 'corection'");
  folder.write("good.toml", kTiny);
  require_refused(motley(folder, {"run", "good.toml", "--set", "run.updates=-3"}), "--set run.updates=-3: error: ");
  folder.write("pairs.jsonl", "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n{\"prompt\": \n");
  require_refused(motley(folder, {"run", "good.toml", "--set", "tasks.0.env=jsonl"}), "unknown key 'digits'");
  folder.write("jsonl.toml", "run.async = false\n[[tasks]]\nenv = \"jsonl\"\npath = \"pairs.jsonl\"\n");
  require_refused(motley(folder, {"run", "jsonl.toml"}), "pairs.jsonl:2");
  const Ended late =
      motley(folder, {"run", "good.toml", "--set", "warmstart.steps=2", "--set", "warmstart.data=pairs.jsonl"});
  CAPTURE(late.err);
  CHECK(late.code == 2);
  CHECK(late.err.find("pairs.jsonl:2") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "runs"));
}

TEST_CASE("--dry-run prints the resolved experiment alone, and makes nothing") {
  const TemporaryFolder folder;
  folder.write("x.toml", kTiny);
  const Ended once = motley(folder, {"run", "x.toml", "--dry-run", "--seed", "5"});
  CHECK(once.code == 0);
  CHECK(once.err.empty());
  CHECK(once.out.find("\nseed = 5\n") != std::string::npos);
  folder.write("dry.toml", once.out);
  CHECK(motley(folder, {"run", "dry.toml", "--dry-run"}).out == once.out);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "runs"));
}

TEST_CASE("a run, its continuation, and the commands that read its checkpoint") {
  const TemporaryFolder folder;
  folder.write("x.toml", kTiny);
  const Ended stopped = motley(folder, {"run", "x.toml", "--stop-after", "2", "--json"});
  CAPTURE(stopped.err);
  REQUIRE(stopped.code == 0);
  CHECK(nlohmann::json::parse(stopped.out).at("interrupted") == true);
  CHECK(folder.read("runs/tiny-0/experiment.toml") == motley(folder, {"run", "x.toml", "--dry-run"}).out);
  CHECK(std::filesystem::exists(folder.path() / "runs/tiny-0/report.html"));

  require_refused(motley(folder, {"run", "--resume", "runs/tiny-0", "--set", "trainer.lr=0.5"}), "trainer.lr is 0.5");
  require_refused(motley(folder, {"run", "x.toml", "--resume", "runs/tiny-0", "--seed", "1"}), "seed is 1");
  const Ended resumed = motley(folder, {"run", "--resume", "runs/tiny-0"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  const std::string metrics = folder.read("runs/tiny-0/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 4);  // updates 0 to 3, none twice

  require_refused(motley(folder, {"run", "--resume", "runs/tiny-0"}), "nothing is left to do");
  require_refused(motley(folder, {"run", "--resume", "runs/tiny-0", "--set", "run.updates=9", "--stop-after", "3"}),
                  "after update 3");

  const Ended again = motley(folder, {"run", "x.toml"});
  CHECK(again.code == 0);
  CHECK(again.err.find("runs/tiny-0-2") != std::string::npos);

  const Ended generated =
      motley(folder, {"generate", "runs/tiny-0", "--prompt", "1+1=", "-n", "3", "--max-tokens", "5", "--json"});
  CHECK(nlohmann::json::parse(generated.out).at("samples").size() == 3);
  CHECK(motley(folder, {"generate", "runs/tiny-0", "--prompt", "1+1=", "-n", "3", "--max-tokens", "5", "--json"}).out ==
        generated.out);
  require_refused(motley(folder, {"generate", "runs/tiny-0", "--prompt", "one"}), "symbol");
  require_refused(motley(folder, {"generate", "runs/tiny-0", "--prompt", std::string(40, '1')}),
                  "motley generate: error");

  const auto evaluated = [&](const std::string& option) {
    return motley(folder, {"eval", "runs/tiny-0", "--task", "arithmetic", "--option", option, "--prompts", "4", "--k",
                           "1,2", "--max-tokens", "4", "--json"})
        .out;
  };
  CHECK(nlohmann::json::parse(evaluated("digits=1")).at("samples") == 8);
  CHECK(evaluated("reversed=false") == evaluated("digits=1"));  // digits as in the run's own experiment.toml
  CHECK(evaluated("digits=3") != evaluated("digits=1"));
  require_refused(motley(folder, {"eval", "runs/tiny-0", "--task", "running_sum"}), "trained on another task");
}

TEST_CASE("the first Ctrl-C leaves a checkpoint that --resume takes") {
  const TemporaryFolder folder;
  folder.write("x.toml", kTiny);
  Binary run(folder, run_arguments("x.toml", {"run.updates=1000000", "run.dir=" + folder.path().string(),
                                              "run.keep_trajectories=none"}));
  while (run.running() && run.log().find("update    1/") == std::string::npos) usleep(1000);
  run.signal(SIGINT);
  const Ended stopped = run.wait();
  const std::string& text = stopped.err;
  CAPTURE(text);
  REQUIRE(stopped.code == 0);
  CHECK(text.find("stopping after this update") != std::string::npos);
  CHECK(text.find("motley run --resume " + (folder.path() / "tiny-0").string()) != std::string::npos);
  const size_t at = text.find("stopped after update ");
  REQUIRE(at != std::string::npos);
  const std::string next = std::to_string(std::stoi(text.substr(at + 21)) + 1);
  const Ended resumed = motley(folder, {"run", "--resume", "tiny-0", "--set", "run.updates=" + next});
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  require_refused(motley(folder, {"run", "--resume", "tiny-0"}), "nothing is left to do");
}

TEST_CASE("score gives null for the first token and names a bad line") {
  const TemporaryFolder folder;
  folder.write("x.toml", kTiny);
  REQUIRE(motley(folder, {"run", "x.toml", "--set", "run.updates=1"}).code == 0);
  folder.write("in.jsonl", "{\"tokens\": [1, 2, 3]}\n{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n");
  const Ended scored = motley(folder, {"score", "runs/tiny-0", "--input", "in.jsonl", "--profile", "fp32"});
  REQUIRE(scored.code == 0);
  const auto first = nlohmann::json::parse(scored.out.substr(0, scored.out.find('\n')));
  CHECK(first.at("log_probs").size() == 3);
  CHECK(first.at("log_probs")[0].is_null());
  CHECK(first.at("log_probs")[1].get<double>() < 0);
  const auto second = nlohmann::json::parse(scored.out.substr(scored.out.find('\n')));
  CHECK(second.at("prompt_tokens") == 4);
  CHECK(second.at("log_probs").size() == 6);  // "1+1=", "2" and the end token

  const std::vector<std::pair<std::string, std::string>> bad{
      {"{\"tokens\": [1, 99]}", "outside the vocabulary"},
      {"{\"tokens\": [1.5]}", "no integer"},
      {"{\"tokens\": [-1]}", "outside the vocabulary"},
      {"{\"tokens\": []}", "no tokens"},
      {"{\"tokens\": 3}", "no list"},
      {"{\"text\": \"one\"}", "symbol"},
      {"{\"txet\": \"1\"}", "neither"},
      {"{\"prompt\": \"1\"}", "answer"},
      {"[1]", "no JSON object"},
      {"{", "no JSON"},
      {"{\"text\": 1}", "no text"},
      {"{\"text\": \"1\", \"tokens\": [1]}", "several"},
      {"{\"tokens\": [99999999999999999999]}", "tokens"},
      {"{\"text\": \"1\", \"answer\": \"1\"}", "unknown key"},
  };
  for (const auto& [line, part] : bad) {
    folder.write("bad.jsonl", "{\"tokens\": [1]}\n\n" + line + "\n");
    const Ended outcome = motley(folder, {"score", "runs/tiny-0", "--input", "bad.jsonl"});
    CAPTURE(line);
    require_refused(outcome, part);
    CHECK(outcome.err.starts_with("bad.jsonl:3: error: "));
  }
  require_refused(motley(folder, {"score", "runs/tiny-0", "--input", "none.jsonl"}),
                  "none.jsonl: error: cannot be read");
}

}  // namespace motley::app
