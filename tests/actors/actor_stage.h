// A test in the place of an actor's peers: the fleet's data, a system of one thread, and what comes from the actor.
#pragma once

#include "actors/system.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {

inline constexpr std::chrono::seconds kLimit{20};

struct Stage {
  Experiment experiment;
  FleetPtr fleet;
  StartingPointPtr point;
  TemporaryFolder folder;
  SystemConfig config{SystemOptions{.threads = 1}};
  caf::actor_system system{config};
  caf::scoped_actor self{system};

  explicit Stage(Experiment wanted) : experiment(std::move(wanted)) {
    Recorder recorder;
    const StopRequest stop{0};
    std::tie(fleet, point) = prepare({experiment, folder.path(), {}, {}}, recorder, stop);
  }
  caf::actor me() { return caf::actor_cast<caf::actor>(self); }
  WeightsPtr weights(uint64_t version) const {
    return std::make_shared<SamplerWeights>(fleet->model, point->parameters, fleet->profile("trainer"), version);
  }
  ParametersPtr snapshot() const { return std::make_shared<const Parameters>(point->parameters.clone()); }
  /// The next message of that kind; fails after kLimit.
  template <class... Types>
  std::tuple<Types...> expect() {
    std::optional<std::tuple<Types...>> result;
    self->receive([&](const Types&... values) { result.emplace(values...); },
                  caf::after(kLimit) >> [] { FAIL("nothing came"); });
    return *result;
  }
  void end(const caf::actor& actor) {
    self->send_exit(actor, caf::exit_reason::user_shutdown);
    self->wait_for(actor);
  }
};

}  // namespace motley::actors
