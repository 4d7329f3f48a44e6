#include "actors/remote/join_learner.h"

#include "actors/remote/join_loop.h"
#include "actors/remote/learner_service.h"
#include "actors/remote/line_stay.h"

namespace motley::actors {
namespace {

constexpr std::chrono::seconds kStepLimit{600};  // for the step under way and the state, when it is to leave

}  // namespace

JoinEnd run_learner(const LearnerRequest& request, const std::function<void(const std::string&)>& say,
                    StopRequest& stop) {
  const auto prepare = [&](const Setting& setting) -> LineRole::Serve {
    const Experiment experiment = request.experiment_of(setting.experiment);
    say("trains " + experiment.name + " on " + experiment.trainer.device);
    return [experiment, model = setting.model](PeerLine& line, const std::function<void()>& served) {
      serve_run(line, experiment, model, served);
    };
  };
  const Joining joining{.address = request.address,
                        .keys = request.keys,
                        .patience = request.patience,
                        .leave_limit = kStepLimit,
                        .hello = {.role = "learner"},
                        .begin = [&](const Welcome&, const Links& links) -> std::unique_ptr<Stay> {
                          say("joined as the run's learner");
                          return std::make_unique<LineStay>(links.context, links.session,
                                                            LineRole{.prepare = prepare, .asks_to_leave = true});
                        }};
  return join_run(joining, say, stop);
}

}  // namespace motley::actors
