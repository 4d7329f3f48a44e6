// motley run: the folder, the observers, the signals; the fleet itself is actors/run.h.
#include "actors/run.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "actors/checkpoint.h"
#include "app/closing_table.h"
#include "app/commands.h"
#include "app/memory.h"
#include "app/metrics_writer.h"
#include "app/progress.h"
#include "app/report.h"
#include "app/run_folder.h"
#include "app/tensorboard.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

/// Metrics, TensorBoard events and the display, fed from the run.
class Observers final : public actors::RunObserver {
 public:
  Observers(const std::filesystem::path& folder, const Experiment& experiment, int64_t keep_through)
      : metrics_(folder / "metrics.jsonl", keep_through),
        tensorboard_(folder),
        progress_(experiment, terminal(), size()) {}
  ~Observers() override { say(progress_.end()); }
  void started(int64_t parameters, int64_t vocabulary, int64_t /*first_update*/) override {
    const std::lock_guard lock(display_);
    say(progress_.started(parameters, vocabulary));
  }
  void warm_start(int64_t step, int64_t steps, double loss, bool cached) override {
    const std::lock_guard lock(display_);
    say(progress_.warm_start(step, steps, loss, cached));
  }
  void update(int64_t update, const algos::Metrics& metrics) override {
    metrics_.write(update, metrics);
    tensorboard_.write(update, metrics);
    const std::lock_guard lock(display_);
    progress_.resized(size());
    say(progress_.update(update, metrics));
  }
  /// From any thread.
  void message(const std::string& text) override {
    const std::lock_guard lock(display_);
    progress_.resized(size());
    say(progress_.message(text));
  }

 private:
  /// Whether lines can be drawn over again there.
  static bool terminal() {
    const char* const type = std::getenv("TERM");
    return isatty(STDERR_FILENO) != 0 && type && std::string_view(type) != "dumb";
  }
  static TerminalSize size() {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
    return {size.ws_col, size.ws_row};
  }
  MetricsWriter metrics_;
  TensorBoardWriter tensorboard_;
  std::mutex display_;
  Progress progress_;
};

/// Waits for SIGINT and SIGTERM, which all threads block: the first asks the run to stop, the second ends the process.
class SignalWatch {
 public:
  SignalWatch(actors::StopRequest& stop, Observers& observers)
      : thread_([this, &stop, &observers] { watch(stop, observers); }) {}
  ~SignalWatch() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

 private:
  void watch(actors::StopRequest& stop, Observers& observers) {
    const sigset_t set = stop_signals();
    for (int received = 0;;) {
      int signal = 0;
      if (sigwait(&set, &signal) != 0) continue;
      if (done_) return;
      if (++received == 2) _exit(130);
      stop = 1;
      observers.message("motley: stopping after this update, with a checkpoint; once more stops now");
    }
  }
  std::atomic<bool> done_{false};
  std::thread thread_;
};

struct Prepared {
  actors::RunRequest request;
  int64_t keep_through = -1;  // of metrics.jsonl
};

std::optional<actors::ListenOptions> listen_options(const RunArguments& arguments) {
  if (arguments.listen.empty()) {
    if (!arguments.key.empty())
      throw InputError({"--key " + arguments.key}, "a key, and nowhere to listen", "give --listen HOST:PORT as well");
    return std::nullopt;
  }
  actors::ListenOptions listen;
  listen.key_file = arguments.key;
  if (!arguments.key.empty()) listen.keys = std::make_shared<const actors::Keys>(actors::read_keys(arguments.key));
  listen.address = actors::parse_listen_address(arguments.listen, listen.keys != nullptr);
  return listen;
}

/// What only shows with the experiment and the way it is run.
void check_listening(const actors::RunRequest& request) {
  const std::vector<SamplerGroupOptions>& groups = request.experiment.samplers;
  if (request.listen && !request.experiment.run.async)
    throw InputError({"--listen"}, "the run is in lock-step", "samplers join asynchronous runs only: run.async = true");
  if (request.experiment.run.learner == "joins" && !request.listen)
    throw InputError({"run.learner"}, "it is \"joins\", and nobody can join",
                     "give --listen HOST:PORT, or run.learner = \"here\"");
  const auto empty = std::find_if(groups.begin(), groups.end(), [&](const SamplerGroupOptions& group) {
    return group.replicas == 0 && !request.experiment.grows_here(group);
  });
  if (empty != groups.end() && !request.listen)
    throw InputError({"samplers." + empty->name}, "a group without replicas, and nobody can join",
                     "give --listen HOST:PORT, or replicas of at least 1");
}

Prepared prepare(const RunArguments& arguments) {
  Prepared prepared;
  prepared.request.stop_after = arguments.stop_after;
  prepared.request.listen = listen_options(arguments);
  if (!arguments.resume.empty()) {
    Resumption resumption = find_resumption(arguments);
    prepared.request.experiment = std::move(resumption.experiment);
    prepared.request.folder = resumption.folder;
    prepared.request.resume = resumption.checkpoint;
    prepared.keep_through = resumption.update;
    return prepared;
  }
  if (arguments.toml.empty()) {
    throw InputError({"motley run"}, "no experiment", "give a TOML file, or --resume with a run folder");
  }
  prepared.request.experiment = load_experiment({arguments.toml, arguments.sets, arguments.seed, !arguments.dry_run});
  return prepared;
}

/// What ends before the first update leaves nothing behind, as if the TOML had been refused.
void remove_unused(const actors::RunRequest& request) {
  std::error_code error;
  const std::filesystem::path metrics = request.folder / "metrics.jsonl";
  if (request.resume || (std::filesystem::exists(metrics, error) && std::filesystem::file_size(metrics, error) > 0))
    return;
  std::filesystem::remove_all(request.folder, error);
  std::filesystem::remove(request.folder.parent_path(), error);  // fails if anything else is there
}

[[nodiscard]] std::unique_ptr<FolderLock> open_folder(Prepared& prepared) {
  actors::RunRequest& request = prepared.request;
  if (!request.resume) request.folder = make_run_folder(request.experiment);
  auto lock = std::make_unique<FolderLock>(request.folder);
  try {
    request.experiment_text = experiment_to_toml(request.experiment);
    write_file_atomically(request.folder / "experiment.toml", request.experiment_text);
  } catch (...) {
    remove_unused(request);
    throw;
  }
  say((request.resume ? "resuming " : "run folder ") + request.folder.string() + "\n");
  return lock;
}

actors::RunSummary observed_run(const Prepared& prepared) {
  const actors::RunRequest& request = prepared.request;
  actors::StopRequest stop{0};
  try {
    Observers observers(request.folder, request.experiment, prepared.keep_through);
    const SignalWatch watch(stop, observers);
    return actors::run_experiment(request, observers, stop);
  } catch (...) {
    remove_unused(request);
    throw;
  }
}

}  // namespace

int run_command(const RunArguments& arguments) {
  Prepared prepared = prepare(arguments);
  if (arguments.dry_run) {
    std::fputs(experiment_to_toml(prepared.request.experiment).c_str(), stdout);
    return 0;
  }
  check_listening(prepared.request);
  if (!prepared.request.resume) require_memory(prepared.request.experiment, arguments.toml);
  std::signal(SIGPIPE, SIG_IGN);            // a reader of the progress that goes away does not end the run
  const sigset_t blocked = stop_signals();  // inherited by every thread that starts below
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  const auto lock = open_folder(prepared);
  const actors::RunRequest& request = prepared.request;
  const actors::RunSummary summary = observed_run(prepared);
  if (summary.checkpoint.empty()) {
    remove_unused(request);
    say("stopped before the first update; nothing was kept\n");
    if (arguments.json) std::fputs(closing_json(summary, {}).c_str(), stdout);
    return 0;
  }
  write_report(request.folder, summary);
  const std::string folder = request.folder.string();
  if (!summary.alarm.empty()) say("motley: error: the run was stopped by its watch: " + summary.alarm + "\n");
  if (summary.interrupted) {
    say("stopped after update " + std::to_string(summary.updates) + "; to go on: motley run --resume " + folder + "\n");
  }
  std::fputs((arguments.json ? closing_json(summary, request.folder) : closing_table(summary)).c_str(), stdout);
  if (!arguments.json)
    say("results: " + folder + " (report.html, metrics.jsonl, " + summary.checkpoint.string() + ")\n");
  return summary.alarm.empty() ? 0 : 1;
}

}  // namespace motley::app
