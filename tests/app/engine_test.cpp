// Engines of other people as samplers: the adapter in Python as it ships, over a stub that speaks HTTP.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

const std::string kEngines = MOTLEY_SOURCE_DIR "/experiments/fleets/engines/";

/// A process of its own until the end of the test.
class Process {
 public:
  explicit Process(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

std::string experiment(const std::string& more) {
  return "name = \"engine\"\nrun.updates = 3\nrun.concurrency = 16\nmodel.layers = 1\nmodel.width = 16\nmodel.heads = "
         "1\n"
         "model.kv_heads = 1\nsampling.max_tokens = 4\nalgo.correction = \"mis\"\nalgo.prompts = 2\nalgo.group_size = "
         "4\n"
         "eval.prompts = 4\n" +
         more +
         "[[tasks]]\nenv = \"arithmetic\"\ndigits = 1\n[[samplers]]\nname = \"engine\"\nprofile = \"bf16\"\n"
         "replicas = 0\n";
}

/// A run that listens at any port, and the adapter that joins it as soon as it does.
Ended run_with_engine(const TemporaryFolder& folder, const std::string& toml, int port) {
  folder.write("x.toml", toml);
  const Process engine({"/usr/bin/python3", kEngines + "stub_engine.py", std::to_string(port)});
  std::thread joiner([&] {
    // The sessions' port is one above the port that is listened on.
    const Process adapter(
        {"/bin/sh", "-c",
         "until /usr/bin/python3 " + kEngines + "http_engine.py 127.0.0.1:" + std::to_string(port + 2) +
             " engine http://127.0.0.1:" + std::to_string(port) + " | tee -a " + (folder / "adapter.log").string() +
             " | grep -q -e over -e records; do sleep 0.1; done"});
    for (int i = 0; i < 6000 && !std::filesystem::exists(folder / "done"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  const Ended ended = run_binary(folder, {"run", "x.toml", "--listen", "127.0.0.1:" + std::to_string(port + 1)});
  folder.write("done", "");
  joiner.join();
  return ended;
}

int free_port() { return 20000 + getpid() % 20000; }

}  // namespace

TEST_CASE("an engine over HTTP trains a run through the adapter in Python", "[external]") {
  const TemporaryFolder folder;
  const Ended ended = run_with_engine(folder, experiment(""), free_port());
  CAPTURE(ended.err, folder.read("adapter.log"));
  REQUIRE(ended.code == 0);
  CHECK(ended.err.find("sampler engine/0 (http engine ") != std::string::npos);
  const std::string rows = folder.read("runs/engine-0/metrics.jsonl");
  const nlohmann::json row = nlohmann::json::parse(rows.substr(rows.rfind('\n', rows.size() - 2) + 1));
  CHECK(row.at("samples/failed") == 0);
  CHECK(row.at("group/engine/share") == 1.0);
  CHECK(row.at("kl/sampler_trainer").get<double>() != 0.0);  // the stub draws all tokens alike, the model does not
}

}  // namespace motley::app
