#include "actors/sampler.h"

#include <algorithm>
#include <chrono>

#include "actors/policy/losses.h"
#include "actors/system.h"
#include "kernels/philox.h"

namespace motley::actors {
namespace {

constexpr double kFull = 0.9;        // share of the slots from which a step counts for the capacity
constexpr int64_t kBurstTokens = 8;  // per slot, in the calibration

uint64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
}

/// The n-th prompt; for an interaction, whose prompt its task alone knows, tokens that stand for one.
std::vector<int32_t> calibration_prompt(const Fleet& fleet, uint64_t n) {
  const envs::TaskMix::Pick pick = fleet.tasks->training(n);
  if (!fleet.tasks->entries()[pick.entry].task->interacts()) return fleet.tokenizer.encode(pick.problem.prompt);
  constexpr int64_t kLength = 64;
  std::vector<int32_t> tokens(static_cast<size_t>(std::clamp<int64_t>(fleet.model.max_positions / 2, 1, kLength)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(kernels::mix(n, i) % static_cast<uint64_t>(fleet.tokenizer.size()));
  return tokens;
}

}  // namespace

caf::behavior Sampler::start(FleetPtr fleet, uint64_t replica, size_t group, const caf::actor& plane,
                             caf::actor router) {
  fleet_ = std::move(fleet);
  replica_ = replica;
  group_ = group;
  router_ = std::move(router);
  self_->send(plane, Subscribe{replica_, group_});
  return {
      [this](const SwapWeights& message, const WeightsPtr& weights) { swap(message, weights); },
      [this](const Decode&, const GenerateRequestsPtr& requests) { decode(*requests); },
      [this](DecodeTick) { tick(); },
      [this](Calibrate) { calibrate(); },
  };
}

void Sampler::swap(const SwapWeights& message, const WeightsPtr& weights) {
  if (weights->version() != message.version || weights->digest() != message.digest)
    throw std::runtime_error("the weights of version " + std::to_string(message.version) +
                             " are not what the weight plane announced");
  const bool first = !engine_;
  if (first) {
    EngineLimits limits;
    limits.max_sequences = fleet_->experiment.samplers[group_].max_sequences;
    if (!fleet_->experiment.samplers[group_].graphs) limits.max_graphs = 0;
    {
      const kernels::ComputeLease lease(compute_);  // the angles of every position are computed
      engine_ = std::make_unique<Engine>(weights, limits);
    }
    compute_.rest();
  } else {
    engine_->set_weights(weights);
  }
  self_->send(caf::actor_cast<caf::actor>(self_->current_sender()), WeightsLive{replica_, message.version});
  if (first) self_->send(router_, ReplicaReady{replica_, group_});
}

void Sampler::decode(std::vector<GenerateRequest>& requests) {
  for (GenerateRequest& request : requests) {
    const uint64_t id = request.id;
    try {
      engine_->submit(std::move(request));
    } catch (const std::invalid_argument& error) {  // fails its own session only
      outbox_.push_back(StepOutput{.id = id, .records = {}, .finish = FinishReason::failed, .error = error.what()});
    }
  }
  if (!outbox_.empty()) send_outbox();
  if (!engine_->idle() && !std::exchange(ticking_, true)) self_->send(self_, DecodeTick{});
}

void Sampler::tick() {
  step();
  ticking_ = !engine_->idle();
  if (ticking_)
    self_->send(self_, DecodeTick{});
  else
    compute_.rest();
}

void Sampler::step() {
  if (fleet_->hooks.before_step) fleet_->hooks.before_step(fleet_->experiment.samplers[group_].name, replica_, steps_);
  ++steps_;
  auto [outputs, elapsed] = timed_step();
  done_.tokens += outputs.size();
  done_.busy_ns += elapsed;
  const auto slots = static_cast<double>(fleet_->experiment.samplers[group_].max_sequences);
  if (static_cast<double>(outputs.size()) >= kFull * slots) {
    done_.full_tokens += outputs.size();
    done_.full_ns += elapsed;
  }
  count_rows();
  for (StepOutput& output : outputs) collect(std::move(output));
  if (!outbox_.empty()) send_outbox();
}

void Sampler::count_rows() {
  const EngineStats now = engine_->stats();
  const auto since = [&](int64_t EngineStats::*count) { return static_cast<uint64_t>(now.*count - counted_.*count); };
  ++done_.steps;
  done_.rows += since(&EngineStats::prefill_rows) + since(&EngineStats::decode_rows);
  done_.prefill_rows += since(&EngineStats::prefill_rows);
  done_.shared_rows += since(&EngineStats::shared_rows);
  if (now.graphs_refused != counted_.graphs_refused)
    self_->send(router_,
                Note{"sampler group " + fleet_->experiment.samplers[group_].name +
                     " launches its kernels one by one, since its decode steps cannot be captured as a graph: " +
                     now.graphs_refused});
  counted_ = now;
}

std::pair<std::vector<StepOutput>, uint64_t> Sampler::timed_step() {
  const kernels::ComputeLease lease(compute_);
  const auto start = std::chrono::steady_clock::now();  // waiting for the lease says nothing about the capacity
  std::vector<StepOutput> outputs = engine_->step();
  return {std::move(outputs), nanoseconds_since(start)};
}

void Sampler::collect(StepOutput output) {
  const auto found = chunks_.find(output.id);
  if (found == chunks_.end()) {
    if (output.finish != FinishReason::none) {
      outbox_.push_back(std::move(output));
    } else {
      chunks_.emplace(output.id, std::move(output));
    }
    return;
  }
  StepOutput& chunk = found->second;
  chunk.records.append(output.records);
  chunk.finish = output.finish;
  chunk.error = std::move(output.error);
  if (chunk.finish == FinishReason::none && chunk.records.size() < kChunk) return;
  outbox_.push_back(std::move(chunk));
  chunks_.erase(found);
}

void Sampler::send_outbox() {
  done_.replica = replica_;
  self_->send(router_, std::exchange(done_, {}), std::make_shared<std::vector<StepOutput>>(std::move(outbox_)));
  outbox_.clear();
}

void Sampler::calibrate() {
  const SamplerGroupOptions& options = fleet_->experiment.samplers[group_];
  const int64_t length = std::min<int64_t>(kBurstTokens, fleet_->experiment.sampling.max_tokens);
  Calibrated result{.replica = replica_};
  for (const bool counted : {false, true}) {  // the first burst warms caches
    for (int64_t slot = 0; slot < options.max_sequences; ++slot) {
      // Prompts of their own, or the cache of the first burst would spare the second its prefill.
      const int64_t place = counted ? options.max_sequences + slot : slot;
      GenerateRequest request;
      request.id = static_cast<uint64_t>(slot);
      request.tokens = calibration_prompt(*fleet_, static_cast<uint64_t>(place));
      request.max_new_tokens = counted ? length : 1;
      request.rule = {.temperature = fleet_->experiment.sampling.temperature,
                      .top_p = fleet_->experiment.sampling.top_p,
                      .top_k = static_cast<int32_t>(fleet_->experiment.sampling.top_k)};
      request.record = fleet_->experiment.record_kind();
      request.record_top_k = fleet_->experiment.sampling.record_top_k;
      request.key = {
          .seed = fleet_->experiment.seed, .purpose = kernels::Purpose::generate, .session = request.id, .attempt = 0};
      engine_->submit(std::move(request));
    }
    while (!engine_->idle()) {
      const auto [outputs, elapsed] = timed_step();
      if (!counted) continue;
      result.tokens += outputs.size();
      result.busy_ns += elapsed;
    }
  }
  compute_.rest();
  counted_ = engine_->stats();
  self_->send(router_, result);
}

caf::behavior sampler(caf::stateful_actor<Sampler>* self, FleetPtr fleet, uint64_t replica, size_t group,
                      const caf::actor& plane, caf::actor router) {
  install_handlers(self);
  return self->state.start(std::move(fleet), replica, group, plane, std::move(router));
}

}  // namespace motley::actors
