// motley worker: makes calls into the tasks of a run elsewhere; the work is actors/remote/join_worker.h.
#include <tuple>

#include "actors/remote/join_worker.h"
#include "app/commands.h"
#include "app/experiment_toml.h"
#include "app/joining.h"

namespace motley::app {

int worker_command(const WorkerArguments& arguments) {
  actors::StopRequest stop{0};
  const LeaveOnSignal signals(stop, "calls under way are finished, interactions begin anew elsewhere");
  actors::WorkerRequest request;
  std::tie(request.address, request.keys) = run_to_join(arguments.join, arguments.key);
  request.slots = arguments.slots;
  request.patience = std::chrono::seconds(arguments.patience);
  request.parse = [](const std::string& text) { return parse_experiment(text, "the run's experiment"); };
  say_end(actors::run_worker(request, say_line, stop));
  return 0;
}

}  // namespace motley::app
