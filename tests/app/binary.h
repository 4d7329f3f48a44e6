// The binary as a user runs it: in a folder, with its output in files, to its end or until a signal.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_folder.h"

namespace motley::app {

struct Ended {
  int code = -1;  // -1: by a signal
  std::string out, err;
};

/// A started binary; stdout and stderr go to files of these names in the folder.
class Binary {
 public:
  /// `shell` runs before the binary in its shell, for limits and the like.
  Binary(const TemporaryFolder& folder, const std::vector<std::string>& arguments, const std::string& shell = "")
      : folder_(folder) {
    std::vector<std::string> command{"sh", "-c", "cd \"$0\" && " + shell + " exec \"$@\" >stdout 2>stderr </dev/null",
                                     folder.path().string(), MOTLEY_BINARY};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    folder.write("stderr", "");
    if (posix_spawnp(&child_, "sh", nullptr, nullptr, argv.data(), environ) != 0) throw std::runtime_error("no sh");
  }
  Binary(const Binary&) = delete;
  Binary& operator=(const Binary&) = delete;
  ~Binary() {
    if (child_ != 0) signal(SIGKILL), wait();
  }
  /// Nothing once it has ended.
  void signal(int number) const {
    if (child_ != 0) kill(child_, number);
  }
  bool running() {
    if (child_ == 0) return false;
    if (waitpid(child_, &status_, WNOHANG) == child_) child_ = 0;
    return child_ != 0;
  }
  pid_t pid() const { return child_; }  // 0 once it has ended
  std::string log() const { return folder_.read("stderr"); }
  Ended wait() {
    if (child_ != 0) waitpid(std::exchange(child_, 0), &status_, 0);
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, folder_.read("stdout"), log()};
  }

 private:
  const TemporaryFolder& folder_;
  pid_t child_ = 0;
  int status_ = 0;
};

inline Ended run_binary(const TemporaryFolder& folder, const std::vector<std::string>& arguments,
                        const std::string& shell = "") {
  return Binary(folder, arguments, shell).wait();
}

/// Exit code 2, no results, `part` in a short text, and one error, in its last line.
inline void require_refused(const Ended& ended, const std::string& part) {
  CAPTURE(ended.code, ended.err, part);
  CHECK(ended.code == 2);
  CHECK(ended.out.empty());
  const size_t last = ended.err.rfind('\n', ended.err.size() - 2) + 1;  // 0 where there is one line
  CHECK(ended.err.find(part) != std::string::npos);
  CHECK(ended.err.find("error: ") >= last);
  CHECK(ended.err.ends_with('\n'));
  CHECK(ended.err.size() < 2000);
}

/// `run FILE --set a --set b ...`
inline std::vector<std::string> run_arguments(const std::string& file, const std::vector<std::string>& sets,
                                              const std::vector<std::string>& further = {}) {
  std::vector<std::string> arguments{"run", file};
  for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
  arguments.insert(arguments.end(), further.begin(), further.end());
  return arguments;
}

/// The [model] section of a transformer for runs of a second.
inline std::string model_section(int width) {
  return "[model]\nlayers = 1\nwidth = " + std::to_string(width) + "\nheads = 2\nkv_heads = 1\nmax_positions = 32\n";
}

/// Two groups of other formats than the trainer's, every random choice and every kind of state in use. After the warm
/// start some answers are right, so that there are gradients.
inline const std::string kSmallRun = R"(name = "small"
[run]
updates = 10
async = false
checkpoint_every = 5
)" + model_section(16) + R"([[tasks]]
env = "arithmetic"
digits = 1
weight = 2.0
[[tasks]]
env = "running_sum"
numbers = 3
base = 5
[warmstart]
steps = 60
batch = 32
lr = 1e-2
[sampling]
temperature = 0.8
top_p = 0.9
max_tokens = 6
[algo]
correction = "sc+mis"
prompts = 4
group_size = 4
minibatches = 2
[trainer]
profile = "fp16"
lr = 1e-2
schedule = "cosine"
warmup_updates = 2
loss_scale = 4194304.0
loss_scale_growth = 2
[[samplers]]
name = "a"
profile = "h100-fp8"
max_sequences = 4
[[samplers]]
name = "b"
profile = "b200-nvfp4"
replicas = 2
max_sequences = 3
staleness = [0, 2]
[eval]
every = 3
prompts = 4
samples = 2
k = [1, 2]
profiles = ["bf16", "fp32"]
)";

/// metrics.jsonl without the keys that a clock has a part in; the rest byte for byte. No name holds a comma.
inline std::string clockless(const std::string& metrics) {
  std::string kept;
  for (size_t at = 0; at < metrics.size();) {
    const size_t end = std::min(metrics.find_first_of(",\n", at), metrics.size());
    const std::string item = metrics.substr(at, end - at);
    if (item.find("time/") == std::string::npos && item.find("cost/") == std::string::npos) kept += item + '\n';
    at = end + 1;
  }
  return kept;
}

}  // namespace motley::app
