#include "actors/provision/command_provisioner.h"

#include <sys/wait.h>

#include <cmath>
#include <deque>
#include <set>
#include <sstream>
#include <thread>

#include "actors/provision/command_template.h"
#include "envs/child_process.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = size_t{1} << 20;  // bytes of a listing
constexpr size_t kAtOnce = 16;                   // commands that stop instances at the end
constexpr std::chrono::milliseconds kLook{5};

std::string describe(const char* what, const std::vector<std::string>& words) {
  return std::string("the ") + what + " command '" + words.front() + "' ";
}

/// timeout(1) stands between, so that nothing runs for ever where motley itself was killed.
envs::ChildOptions bounded(double seconds, const std::vector<std::string>& words) {
  constexpr double kGrace = 1.0;
  envs::ChildOptions options{.words = {"timeout", "--signal=KILL", std::to_string(seconds + kGrace)},
                             .most_output = kMostOutput};
  options.words.insert(options.words.end(), words.begin(), words.end());
  return options;
}

bool succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace

CommandProvisioner::CommandProvisioner(const ProvisionOptions& options, const ProvisionContext& context,
                                       std::function<bool()> cancelled)
    : options_(options),
      prefix_(context.prefix),
      values_{{"group", context.group}, {"profile", context.profile}, {"join", context.join}, {"key", context.key}},
      cancelled_(std::move(cancelled)) {}

std::vector<std::string> CommandProvisioner::words(const std::vector<std::string>& command,
                                                   const std::string& name) const {
  std::map<std::string, std::string> values = values_;
  values["instance"] = name;
  return fill_in(command, values);
}

std::string CommandProvisioner::run(const char* what, const std::vector<std::string>& words) {
  const std::string command = describe(what, words);
  try {
    const auto limit =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.call_seconds));
    envs::ChildProcess child(bounded(options_.call_seconds, words));
    const bool in_time = child.talk("", Clock::now() + limit, cancelled_);
    const int status = child.end();
    const std::string line = child.last_error().empty() ? "" : ": " + child.last_error();
    if (!in_time && cancelled_ && cancelled_()) throw ProvisionError(command + "was cut short by the end of the run");
    if (!in_time)
      throw ProvisionError(command + "took longer than samplers.call_seconds (" +
                           std::to_string(std::lround(options_.call_seconds)) + " s) and was killed" + line);
    if (child.too_much()) throw ProvisionError(command + "printed more than " + std::to_string(kMostOutput) + " bytes");
    if (!succeeded(status)) throw ProvisionError(command + child.ending());
    return child.output();
  } catch (const envs::ChildError& error) {
    throw ProvisionError(command + error.what());
  }
}

void CommandProvisioner::start(const std::string& name) { run("start", words(options_.start, name)); }

void CommandProvisioner::stop(const std::string& name) { run("stop", words(options_.stop, name)); }

std::vector<Instance> CommandProvisioner::list() {
  std::istringstream lines(run("list", words(options_.list, "")));
  std::set<std::string> names;  // a process that starts another is seen twice for a moment
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    name.erase(0, name.rfind('/') + 1);
    if (instance_number(name, prefix_) > 0) names.insert(name);
  }
  std::vector<Instance> found;
  for (const std::string& name : names) found.push_back({name, ""});
  return found;
}

std::vector<std::string> CommandProvisioner::stop_all(const std::vector<std::string>& names,
                                                      Clock::time_point deadline) {
  std::vector<std::string> failures;
  std::deque<std::string> waiting(names.begin(), names.end());
  std::map<std::string, std::unique_ptr<envs::ChildProcess>> going;
  const auto fail = [&](const std::string& name, const std::string& how) {
    failures.push_back(name + ": the stop command " + how);
  };
  while (!waiting.empty() || !going.empty()) {
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left <= 0) break;
    for (; !waiting.empty() && going.size() < kAtOnce; waiting.pop_front()) {
      try {
        going[waiting.front()] =
            std::make_unique<envs::ChildProcess>(bounded(left, words(options_.stop, waiting.front())));
      } catch (const envs::ChildError& error) {
        going.erase(waiting.front());
        fail(waiting.front(), error.what());
      }
    }
    std::erase_if(going, [&](const auto& each) {
      if (each.second->running()) return false;
      if (!succeeded(each.second->end())) fail(each.first, each.second->ending());
      return true;
    });
    std::this_thread::sleep_for(kLook);
  }
  for (const auto& [name, child] : going) fail(name, "took too long");
  for (const std::string& name : waiting) fail(name, "had no time left");
  return failures;
}

}  // namespace motley::actors
