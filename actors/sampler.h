// A sampler replica: a decoding engine behind an actor with a thread of its own. One message per decode step
// (DecodeTick, sent to itself), so that new sessions, weight swaps and exits get in between two steps.
#pragma once

#include <unordered_map>

#include "actors/messages.h"
#include "kernels/parallel.h"

namespace motley::actors {

class Sampler {
 public:
  explicit Sampler(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, uint64_t replica, size_t group, const caf::actor& plane, caf::actor router);

 private:
  void swap(const SwapWeights& swap, const WeightsPtr& weights);
  void decode(std::vector<GenerateRequest>& requests);
  void tick();
  void step();
  /// Adds what the engine has computed since the last time to done_.
  void count_rows();
  /// One step of the engine under a lease: what it did, and its nanoseconds.
  std::pair<std::vector<StepOutput>, uint64_t> timed_step();
  void calibrate();
  /// Adds an output to its session's chunk; moves the chunk to the outbox when it is due.
  void collect(StepOutput output);
  void send_outbox();

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  uint64_t replica_ = 0;
  size_t group_ = 0;
  caf::actor router_;
  std::unique_ptr<Engine> engine_;
  kernels::ComputeClient compute_{kernels::ComputeSide::sampler};
  std::unordered_map<uint64_t, StepOutput> chunks_;
  std::vector<StepOutput> outbox_;
  Decoded done_;
  bool ticking_ = false;
  int64_t steps_ = 0;
  EngineStats counted_;  // what done_ has heard of
};

caf::behavior sampler(caf::stateful_actor<Sampler>* self, FleetPtr fleet, uint64_t replica, size_t group,
                      const caf::actor& plane, caf::actor router);

}  // namespace motley::actors
