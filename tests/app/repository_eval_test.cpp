// motley eval on repository tasks, and what a policy whose tokenizer does not fit is told.
#include <nlohmann/json.hpp>

#include "envs/repository/generate.h"
#include "envs/sandbox/support.h"
#include "tensor/model_file.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

using nlohmann::json;

/// A model of random weights with this tokenizer.
void write_model(const TemporaryFolder& folder, const std::string& name, const envs::Tokenizer& tokenizer) {
  TransformerConfig config{.vocabulary = tokenizer.size(), .layers = 1, .width = 16, .heads = 2, .kv_heads = 1};
  config.max_positions = 256;
  config = config.resolved();
  std::filesystem::create_directories(folder / name);
  save_model(folder / name, config, Parameters::initialize(config, 3));
  folder.write(name + "/tokenizer.json", tokenizer.to_json());
}

const std::vector<std::string> kEval{"eval",          "model", "--task", "repository", "--option",     "count=100",
                                     "--prompts",     "2",     "--k",    "1",          "--max-tokens", "4",
                                     "--temperature", "3"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("eval plays repository tasks in sandboxes and tells how episodes ended, of each set") {
  const TemporaryFolder folder;
  write_model(folder, "model", envs::Tokenizer(envs::task_symbols(), true));
  require_refused(run_binary(folder, with(kEval, {"--sets", "full,nowhere"})),
                  "named nowhere; there are: full, awk, bash, files, hard, lines, python");
  if (!envs::examine_sandboxes().works) {
    WARN("SKIPPED, this machine makes no sandboxes");
    return;
  }
  const Ended ended = run_binary(folder, with(kEval, {"--sets", "full,hard", "--json"}));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const json result = json::parse(ended.out);
  CHECK(result.at("samples") == 2);
  CHECK(result.at("failed") == 0);
  CHECK(result.at("turns") >= 3);  // three replies without a call, or more
  CHECK(result.at("ends").at("format_errors") == 2);
  CHECK(result.at("format_errors") == 3);
  CHECK(result.at("pass_at").at("1") == 0);
  CHECK(result.at("sets").at("full").at("samples") == 2);
  CHECK(result.at("sets").at("hard").at("pass_prompts").at("1") == 2);
  CHECK(run_binary(folder, with(kEval, {"--sets", "full,hard", "--json"})).out == ended.out);
  const Ended text = run_binary(folder, kEval);
  CHECK(text.out.find("pass@1    0.0000 +- 0.0000\n") != std::string::npos);
  CHECK(text.out.find("ends      format_errors 2\n") != std::string::npos);
  const Ended refused =
      run_binary(folder, kEval, "unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && \"$@\"' sh");
  require_refused(refused, "sysctl -w user.max_user_namespaces=15000");
}

TEST_CASE("a tokenizer without the symbols, bytes or special tokens of a task is refused by name") {
  const TemporaryFolder folder;
  write_model(folder, "model", envs::Tokenizer({"0", "1"}));
  require_refused(run_binary(folder, kEval), "needs the symbol for every byte");
  write_model(folder, "model", envs::Tokenizer(envs::task_symbols(), true));
  require_refused(run_binary(folder, with(kEval, {"--option", "format=chatml"})),
                  "needs the special token <|im_start|>");
  folder.write("x.toml",
               "model.path = \"model\"\nwarmstart.steps = 0\n[[tasks]]\nenv = \"repository\"\ncount = 100\n"
               "format = \"chatml\"\n[[samplers]]\nname = \"a\"\n[algo]\ncorrection = \"grpo\"\n");
  require_refused(run_binary(folder, {"run", "x.toml"}), "no special token <|im_start|>, which the tasks need");
  CHECK_FALSE(std::filesystem::exists(folder / "runs"));
}

TEST_CASE("held-out sets that no task names, or that are named like a profile, are refused at their key") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& set, const std::string& part) {
    folder.write(
        "x.toml",
        "[eval]\nsets = [\"full\", \"" + set +
            "\"]\n[[tasks]]\nenv = \"repository\"\ncount = 100\n[[samplers]]\nname = \"a\"\n[algo]\ncorrection = "
            "\"grpo\"\n");
    const Ended ended = run_binary(folder, {"run", "x.toml", "--dry-run"});
    require_refused(ended, part);
    CHECK(ended.err.find("x.toml:2:8") != std::string::npos);
  };
  refused("hart", "there are: awk, bash, files, full, hard, lines, python; did you mean 'hard'?");
  refused("bf16", "as a numeric profile is");
}

TEST_CASE("generate --json: bytes that are no UTF-8 are replaced in the text, and stand in the tokens") {
  const TemporaryFolder folder;
  write_model(folder, "model", envs::Tokenizer({}, true));
  const std::vector<std::string> command{"generate", "model",  "--prompt",      "x", "--max-tokens", "40", "-n",
                                         "4",        "--json", "--temperature", "50"};
  const Ended ended = run_binary(folder, command);
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const json samples = json::parse(ended.out).at("samples");
  REQUIRE(samples.size() == 4);
  CHECK(ended.out.find("\xef\xbf\xbd") != std::string::npos);
  CHECK(samples[0].at("tokens").size() >= 1);
}

}  // namespace
}  // namespace motley::app
