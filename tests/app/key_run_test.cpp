// A run that listens with a key, as users start it: who does not hold the key is told so and changes nothing, who does
// trains it, and no secret is in anything that either says or writes.
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

const std::string kListening = R"(name = "keyed"
[run]
updates = 2
async = true
concurrency = 4
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
replicas = 0
max_sequences = 4
[eval]
prompts = 2
samples = 1
k = [1]
)";

/// Where the run says that it listens.
std::string address_of(Binary& run) {
  static const std::regex said("--join ([0-9.]+:[0-9]+) --key");
  for (int i = 0; i < 6000 && run.running(); ++i) {
    const std::string log = run.log();
    std::smatch found;
    if (std::regex_search(log, found, said)) return found[1];
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL("the run does not listen: " << run.log());
  return {};
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What of a key file nobody may see: the secret of CURVE, and the lines of the private key.
std::vector<std::string> secrets_of(const std::string& key) {
  std::vector<std::string> secrets{key.substr(key.find("curve-secret ") + 13, 40)};
  std::istringstream lines(key.substr(key.find("BEGIN PRIVATE KEY")));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.starts_with("-----")) secrets.push_back(line.substr(0, 40));
  return secrets;
}

}  // namespace

TEST_CASE("a run that listens with a key is joined by its holder alone, and no secret leaves the file") {
  const TemporaryFolder home, elsewhere;
  home.write("x.toml", kListening);
  REQUIRE(run_binary(elsewhere, {"keygen", "fleet.key"}).code == 0);
  REQUIRE(run_binary(elsewhere, {"keygen", "other.key"}).code == 0);
  const std::string key = (elsewhere / "fleet.key").string();
  Binary run(home, {"run", "x.toml", "--listen", ":0", "--key", key});
  const std::string address = address_of(run);
  const auto join = [&](const std::vector<std::string>& with) {
    std::vector<std::string> arguments{"sampler", "--join", address, "--group", "a", "--device", "cpu", "--patience"};
    arguments.insert(arguments.end(), with.begin(), with.end());
    return run_binary(elsewhere, arguments);
  };
  std::string said;
  for (const std::vector<std::string>& with : {std::vector<std::string>{"0"}, {"0", "--key", "other.key"}}) {
    const Ended stranger = join(with);
    CHECK(stranger.code == 1);
    CHECK(stranger.err.find(with.size() == 1 ? "needs --key" : "holds the same key") != std::string::npos);
    said += stranger.err;
  }
  CHECK(run.running());
  const Ended member = join({"20", "--key", "fleet.key"});
  const Ended ended = run.wait();
  CAPTURE(member.err, ended.err);
  CHECK(member.code == 0);
  CHECK(ended.code == 0);
  said += member.err + member.out + ended.err + ended.out;

  for (const auto& entry : fs::recursive_directory_iterator(home.path())) {
    if (entry.is_regular_file()) said += bytes_of(entry.path());
  }
  CHECK(said.size() > 10000);
  for (const std::string& secret : secrets_of(elsewhere.read("fleet.key"))) {
    REQUIRE(secret.size() >= 16);
    CHECK(said.find(secret) == std::string::npos);
  }
}

}  // namespace motley::app
