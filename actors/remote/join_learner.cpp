#include "actors/remote/join_learner.h"

#include "actors/remote/join_loop.h"
#include "actors/remote/learner_stay.h"

namespace motley::actors {
namespace {

constexpr std::chrono::seconds kStepLimit{600};  // for the step under way and the state, when it is to leave

}  // namespace

JoinEnd run_learner(const LearnerRequest& request, const std::function<void(const std::string&)>& say,
                    StopRequest& stop) {
  const Joining joining{.address = request.address,
                        .keys = request.keys,
                        .patience = request.patience,
                        .leave_limit = kStepLimit,
                        .hello = {.role = "learner"},
                        .begin = [&](const Welcome&, const Links& links) -> std::unique_ptr<Stay> {
                          say("joined as the run's learner");
                          return std::make_unique<LearnerStay>(links.context, links.session, request.experiment_of,
                                                               say);
                        }};
  return join_run(joining, say, stop);
}

}  // namespace motley::actors
