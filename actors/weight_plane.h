// The weight plane: from snapshots of the masters to what the samplers hold, quantized once per distinct profile.
#pragma once

#include <chrono>

#include "actors/messages.h"
#include "kernels/parallel.h"

namespace motley::actors {

class WeightPlane {
 public:
  explicit WeightPlane(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet);

 private:
  struct Replica {
    size_t kind = 0;  // into kinds_
    size_t group = 0;
    caf::actor handle;
    std::optional<uint64_t> live;  // none while another is on its way
    std::optional<uint64_t> had;   // the last that was live
  };
  /// Chooses every group's version and sends it to the replicas.
  void roll_out();
  void send_weights(Replica& replica);
  WeightsPtr weights(size_t kind, uint64_t version);
  /// Of the group's profile: on its device, or as it travels to other processes.
  size_t kind_of(size_t group, bool remote);
  void confirm();
  /// Tells the learner how long the newest version took that every sampler has had, or one after it.
  void measure();

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor learner_;
  kernels::ComputeClient compute_{kernels::ComputeSide::sampler};
  std::map<uint64_t, ParametersPtr> snapshots_;  // by version: the newest, and those that may be imposed
  std::vector<uint64_t> target_;                 // by group; empty before the first version
  struct Kind {
    kernels::NumericProfile profile;
    Device device;
    bool operator==(const Kind&) const = default;
  };
  std::vector<Kind> kinds_;                                      // distinct ones
  std::map<std::pair<size_t, uint64_t>, WeightsPtr> quantized_;  // by kind and version
  std::map<uint64_t, Replica> replicas_;
  std::map<uint64_t, std::chrono::steady_clock::time_point> published_;  // versions that some sampler has not had
  bool quantizing_ = false;
  std::optional<uint64_t> unconfirmed_;  // lock-step: the version that the learner waits for
};

caf::behavior weight_plane(caf::stateful_actor<WeightPlane>* self, FleetPtr fleet);

}  // namespace motley::actors
