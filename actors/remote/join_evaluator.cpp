#include "actors/remote/join_evaluator.h"

#include "actors/remote/evaluation_service.h"
#include "actors/remote/join_loop.h"
#include "actors/remote/line_stay.h"

namespace motley::actors {

JoinEnd run_evaluator(const EvaluatorRequest& request, const std::function<void(const std::string&)>& say,
                      StopRequest& stop) {
  const auto prepare = [&](const Setting& setting) -> LineRole::Serve {
    const FleetPtr fleet = evaluating_fleet(request.experiment_of(setting.experiment), setting);
    say("evaluates " + fleet->experiment.name + " on " + fleet->experiment.eval.device);
    return [fleet](PeerLine& line, const std::function<void()>& served) { serve_evaluations(line, *fleet, served); };
  };
  const Joining joining{.address = request.address,
                        .keys = request.keys,
                        .patience = request.patience,
                        .hello = {.role = "evaluator"},
                        .begin = [&](const Welcome&, const Links& links) -> std::unique_ptr<Stay> {
                          say("joined as an evaluator");
                          return std::make_unique<LineStay>(links.context, links.session,
                                                            LineRole{.prepare = prepare, .fails_for_good = true});
                        }};
  return join_run(joining, say, stop);
}

}  // namespace motley::actors
