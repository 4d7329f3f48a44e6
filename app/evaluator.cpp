// motley evaluator: makes the evaluations of a run elsewhere; the work is actors/remote/join_evaluator.h.
#include <tuple>

#include "actors/remote/join_evaluator.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/experiment_toml.h"
#include "app/joining.h"

namespace motley::app {

int evaluator_command(const EvaluatorArguments& arguments) {
  actors::StopRequest stop{0};
  const LeaveOnSignal signals(stop, "the run itself makes the evaluation that is under way");
  actors::EvaluatorRequest request;
  std::tie(request.address, request.keys) = run_to_join(arguments.join, arguments.key);
  const std::string device = kernels::device_name(device_or_best(arguments.device));
  request.experiment_of = [device](const std::string& text) {
    Experiment experiment = parse_experiment(text, "the run's experiment");
    experiment.eval.device = device;
    return experiment;
  };
  request.patience = std::chrono::seconds(arguments.patience);
  use_compute_threads(arguments.threads);
  say_end(actors::run_evaluator(request, say_line, stop));
  return 0;
}

}  // namespace motley::app
