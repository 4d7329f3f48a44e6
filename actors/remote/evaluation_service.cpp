#include "actors/remote/evaluation_service.h"

#include "actors/evaluator.h"
#include "actors/remote/evaluation_wire.h"
#include "actors/remote/join.h"
#include "actors/remote/work_wire.h"

namespace motley::actors {
namespace {

void serve_evaluation(PeerLine& line, const Fleet& fleet, std::string_view body) {
  const EvaluateHead head = parse_evaluate(body);
  const std::shared_ptr<const Parameters> weights = read_weights(line, fleet.model);
  try {
    const algos::Metrics metrics = evaluate_version(fleet, *weights, head.version, [&] { return line.is_closed(); });
    line.send(FrameKind::evaluated, trained_body({head.update, metrics}));
  } catch (const LineClosed&) {
    throw;
  } catch (const std::exception& error) {
    line.send(FrameKind::failed, text_body(error.what()));
    throw;
  }
}

}  // namespace

FleetPtr evaluating_fleet(Experiment experiment, const Setting& setting) {
  auto fleet = std::make_shared<Fleet>();
  fleet->experiment = std::move(experiment);
  fleet->model = setting.model;
  fleet->tokenizer = setting.tokenizer;
  fleet->tasks = make_tasks(fleet->experiment, fleet->experiment.seed);
  for (const envs::TaskMix::Entry& entry : fleet->tasks->entries()) entry.task->require();
  fleet->task_digests = task_digests(*fleet->tasks, fleet->experiment.seed);
  return fleet;
}

void serve_evaluations(PeerLine& line, const Fleet& fleet, const std::function<void()>& served) {
  line.send(FrameKind::ready, ready_body({1, fleet.task_digests}));
  served();
  for (;;) {
    const auto [kind, body] = line.next();
    switch (kind) {
      case FrameKind::evaluate:
        serve_evaluation(line, fleet, body);
        break;
      case FrameKind::unfit:
        throw JoinRefused("the run refuses this evaluator: " + parse_text(body));
      default:
        throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) +
                        ", which runs do not send to evaluators");
    }
  }
}

}  // namespace motley::actors
