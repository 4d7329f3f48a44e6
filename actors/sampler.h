// A sampler replica: a decoding engine behind an actor with a thread of its own. One message per decode step
// (DecodeTick, sent to itself), so that new sessions, weight swaps and exits get in between two steps.
#pragma once

#include "actors/messages.h"

namespace motley::actors {

class Sampler {
 public:
  explicit Sampler(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, uint64_t replica, size_t group, const caf::actor& plane, caf::actor router);

 private:
  void swap(const SwapWeights& swap, const WeightsPtr& weights);
  void tick();
  void send_report(DecodeReport report);
  const SamplerGroupOptions& options() const { return fleet_->experiment.samplers[group_]; }

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  uint64_t replica_ = 0;
  size_t group_ = 0;
  caf::actor router_;
  std::unique_ptr<Decoder> decoder_;
  bool ticking_ = false;
  int64_t steps_ = 0;
};

caf::behavior sampler(caf::stateful_actor<Sampler>* self, FleetPtr fleet, uint64_t replica, size_t group,
                      const caf::actor& plane, caf::actor router);

}  // namespace motley::actors
