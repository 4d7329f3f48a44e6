#include "actors/sampler.h"

#include "actors/calibration.h"
#include "actors/system.h"

namespace motley::actors {

caf::behavior Sampler::start(FleetPtr fleet, uint64_t replica, size_t group, const caf::actor& plane,
                             caf::actor router) {
  fleet_ = std::move(fleet);
  replica_ = replica;
  group_ = group;
  router_ = std::move(router);
  decoder_ = std::make_unique<Decoder>(DecoderOptions{.max_sequences = options().max_sequences,
                                                      .graphs = options().graphs,
                                                      .kv_on_swap = fleet_->experiment.kv_on_swap()});
  self_->send(plane, Subscribe{replica_, group_});
  return {
      [this](const SwapWeights& message, const WeightsPtr& weights) { swap(message, weights); },
      [this](const Decode&, const GenerateRequestsPtr& requests) {
        decoder_->submit(*requests);
        if (auto report = decoder_->report()) send_report(std::move(*report));
        if (!decoder_->idle() && !std::exchange(ticking_, true)) self_->send(self_, DecodeTick{});
      },
      [this](DecodeTick) { tick(); },
      [this](Calibrate) {
        const Calibration result = decoder_->calibrate(calibration_requests(*fleet_, group_));
        self_->send(router_, Calibrated{replica_, result.tokens, result.busy_ns});
      },
      [this](Retire) {
        send_report(decoder_->ready() ? decoder_->leave() : DecodeReport{});
        self_->send(router_, ReplicaLeft{replica_});
        self_->quit();
      },
  };
}

void Sampler::swap(const SwapWeights& message, const WeightsPtr& weights) {
  if (weights->version() != message.version || weights->digest() != message.digest)
    throw std::runtime_error("the weights of version " + std::to_string(message.version) +
                             " are not what the weight plane announced");
  const bool first = !decoder_->ready();
  decoder_->set_weights(weights);
  self_->send(caf::actor_cast<caf::actor>(self_->current_sender()), WeightsLive{replica_, message.version});
  if (first) self_->send(router_, ReplicaReady{replica_, group_, ""});
}

void Sampler::tick() {
  if (fleet_->hooks.before_step) fleet_->hooks.before_step(options().name, replica_, steps_);
  ++steps_;
  decoder_->step();
  if (auto report = decoder_->report()) send_report(std::move(*report));
  if (const auto refusal = decoder_->take_refusal())
    self_->send(
        router_,
        Note{"sampler group " + options().name +
             " launches its kernels one by one, since its decode steps cannot be captured as a graph: " + *refusal});
  ticking_ = !decoder_->idle();
  if (ticking_)
    self_->send(self_, DecodeTick{});
  else
    decoder_->rest();
}

void Sampler::send_report(DecodeReport report) {
  self_->send(router_, Decoded{replica_, report.counts},
              std::make_shared<std::vector<StepOutput>>(std::move(report.outputs)));
}

caf::behavior sampler(caf::stateful_actor<Sampler>* self, FleetPtr fleet, uint64_t replica, size_t group,
                      const caf::actor& plane, caf::actor router) {
  install_handlers(self);
  return self->state.start(std::move(fleet), replica, group, plane, std::move(router));
}

}  // namespace motley::actors
