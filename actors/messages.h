// All messages between actors. Plain structs with their wire form: no floating-point members (CAF 0.17 loses NaN, -0
// and denormals, and loops for ever on infinities), nothing over 64 KiB. Bulk is a shared pointer that travels beside
// its message inside the process (the names ending in Ptr below). Who sends what to whom: docs/actors.md.
#pragma once

#include <caf/all.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/fleet.h"

namespace motley::actors {

// Weights: learner -> weight plane -> samplers, and back.
struct Publish {
  uint64_t version = 0;
  bool live = true;  // false: only kept for imposed staleness
};
struct Published {  // lock-step: every replica has the weights that the next update asks for
  uint64_t version = 0;
};
struct Subscribe {
  uint64_t replica = 0, group = 0;
};
struct SwapWeights {
  uint64_t version = 0, digest = 0;
};
struct WeightsLive {
  uint64_t replica = 0, version = 0;
};
struct QuantizeTick {};

// Sessions: environment -> router -> samplers, and back.
struct OpenSessions {
  uint64_t count = 0;
};
struct Decode {
  uint64_t count = 0;
};
struct Decoded {  // with what the replica has done since its last one
  uint64_t replica = 0, tokens = 0, busy_ns = 0, full_tokens = 0, full_ns = 0;
  uint64_t steps = 0, rows = 0, prefill_rows = 0, shared_rows = 0;  // of its engine (EngineStats)
};
struct SessionsFinished {
  uint64_t count = 0;
};
struct DecodeTick {};
struct ReplicaReady {
  uint64_t replica = 0, group = 0;
};
struct ReplicaLost {
  uint64_t replica = 0;
  std::string cause;
};
struct Calibrate {};
struct Calibrated {
  uint64_t replica = 0, tokens = 0, busy_ns = 0;
};
struct FleetReady {};
struct RateQuery {};
struct GroupRates {  // since the start, by group
  std::vector<uint64_t> tokens, busy_ns, steps, rows, prefill_rows, shared_rows;
};

// Episodes: learner -> environment -> workers, and back.
struct StartIssuing {
  uint64_t next_prompt = 0;
  std::vector<uint64_t> again;  // issued before the checkpoint and not consumed
};
struct IssueBatch {
  uint64_t first_prompt = 0, prompts = 0;
};
struct Credits {
  uint64_t episodes = 0;
};
struct Work {
  uint64_t session = 0;
};
struct Worked {
  uint64_t session = 0;
};
struct Probe {};
struct EpisodeDone {
  uint64_t session = 0;
};

// Evaluation: learner -> evaluator, and back.
struct Evaluate {
  uint64_t update = 0, version = 0;
};
struct Evaluated {
  uint64_t update = 0, version = 0;
};

// The run: supervisor, learner and the thread that called run_experiment.
struct Begin {
  caf::actor environment;
};
struct StopRun {};
struct UpdateRow {
  uint64_t update = 0;
};
struct Note {
  std::string text;
};
struct RunFinished {
  bool interrupted = false;
};
struct RunFailed {
  std::string actor, cause;
};
struct ShutDown {};

#define MOTLEY_MESSAGE(type, ...)                                                   \
  template <class Inspector>                                                        \
  typename Inspector::result_type inspect(Inspector& f, [[maybe_unused]] type& m) { \
    return f(caf::meta::type_name(#type) __VA_OPT__(, ) __VA_ARGS__);               \
  }
MOTLEY_MESSAGE(Publish, m.version, m.live)
MOTLEY_MESSAGE(Published, m.version)
MOTLEY_MESSAGE(Subscribe, m.replica, m.group)
MOTLEY_MESSAGE(SwapWeights, m.version, m.digest)
MOTLEY_MESSAGE(WeightsLive, m.replica, m.version)
MOTLEY_MESSAGE(QuantizeTick)
MOTLEY_MESSAGE(OpenSessions, m.count)
MOTLEY_MESSAGE(Decode, m.count)
MOTLEY_MESSAGE(Decoded, m.replica, m.tokens, m.busy_ns, m.full_tokens, m.full_ns, m.steps, m.rows, m.prefill_rows,
               m.shared_rows)
MOTLEY_MESSAGE(SessionsFinished, m.count)
MOTLEY_MESSAGE(DecodeTick)
MOTLEY_MESSAGE(ReplicaReady, m.replica, m.group)
MOTLEY_MESSAGE(ReplicaLost, m.replica, m.cause)
MOTLEY_MESSAGE(Calibrate)
MOTLEY_MESSAGE(Calibrated, m.replica, m.tokens, m.busy_ns)
MOTLEY_MESSAGE(FleetReady)
MOTLEY_MESSAGE(RateQuery)
MOTLEY_MESSAGE(GroupRates, m.tokens, m.busy_ns, m.steps, m.rows, m.prefill_rows, m.shared_rows)
MOTLEY_MESSAGE(StartIssuing, m.next_prompt, m.again)
MOTLEY_MESSAGE(IssueBatch, m.first_prompt, m.prompts)
MOTLEY_MESSAGE(Credits, m.episodes)
MOTLEY_MESSAGE(Work, m.session)
MOTLEY_MESSAGE(Worked, m.session)
MOTLEY_MESSAGE(Probe)
MOTLEY_MESSAGE(EpisodeDone, m.session)
MOTLEY_MESSAGE(Evaluate, m.update, m.version)
MOTLEY_MESSAGE(Evaluated, m.update, m.version)
MOTLEY_MESSAGE(Begin, m.environment)
MOTLEY_MESSAGE(StopRun)
MOTLEY_MESSAGE(UpdateRow, m.update)
MOTLEY_MESSAGE(Note, m.text)
MOTLEY_MESSAGE(RunFinished, m.interrupted)
MOTLEY_MESSAGE(RunFailed, m.actor, m.cause)
MOTLEY_MESSAGE(ShutDown)
#undef MOTLEY_MESSAGE

}  // namespace motley::actors

// A type that is missing here works inside a process and arrives empty in another.
CAF_BEGIN_TYPE_ID_BLOCK(motley, first_custom_type_id)
CAF_ADD_TYPE_ID(motley, (motley::actors::Publish))
CAF_ADD_TYPE_ID(motley, (motley::actors::Published))
CAF_ADD_TYPE_ID(motley, (motley::actors::Subscribe))
CAF_ADD_TYPE_ID(motley, (motley::actors::SwapWeights))
CAF_ADD_TYPE_ID(motley, (motley::actors::WeightsLive))
CAF_ADD_TYPE_ID(motley, (motley::actors::QuantizeTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::OpenSessions))
CAF_ADD_TYPE_ID(motley, (motley::actors::Decode))
CAF_ADD_TYPE_ID(motley, (motley::actors::Decoded))
CAF_ADD_TYPE_ID(motley, (motley::actors::SessionsFinished))
CAF_ADD_TYPE_ID(motley, (motley::actors::DecodeTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::ReplicaReady))
CAF_ADD_TYPE_ID(motley, (motley::actors::ReplicaLost))
CAF_ADD_TYPE_ID(motley, (motley::actors::Calibrate))
CAF_ADD_TYPE_ID(motley, (motley::actors::Calibrated))
CAF_ADD_TYPE_ID(motley, (motley::actors::FleetReady))
CAF_ADD_TYPE_ID(motley, (motley::actors::RateQuery))
CAF_ADD_TYPE_ID(motley, (motley::actors::GroupRates))
CAF_ADD_TYPE_ID(motley, (motley::actors::StartIssuing))
CAF_ADD_TYPE_ID(motley, (motley::actors::IssueBatch))
CAF_ADD_TYPE_ID(motley, (motley::actors::Credits))
CAF_ADD_TYPE_ID(motley, (motley::actors::Work))
CAF_ADD_TYPE_ID(motley, (motley::actors::Worked))
CAF_ADD_TYPE_ID(motley, (motley::actors::Probe))
CAF_ADD_TYPE_ID(motley, (motley::actors::EpisodeDone))
CAF_ADD_TYPE_ID(motley, (motley::actors::Evaluate))
CAF_ADD_TYPE_ID(motley, (motley::actors::Evaluated))
CAF_ADD_TYPE_ID(motley, (motley::actors::Begin))
CAF_ADD_TYPE_ID(motley, (motley::actors::StopRun))
CAF_ADD_TYPE_ID(motley, (motley::actors::UpdateRow))
CAF_ADD_TYPE_ID(motley, (motley::actors::Note))
CAF_ADD_TYPE_ID(motley, (motley::actors::RunFinished))
CAF_ADD_TYPE_ID(motley, (motley::actors::RunFailed))
CAF_ADD_TYPE_ID(motley, (motley::actors::ShutDown))
CAF_END_TYPE_ID_BLOCK(motley)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::TrajectoryPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::SessionRequestsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::GenerateRequestsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::StepOutputsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::FinishedSessionsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::EpisodeJobPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::EpisodeStepPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::ParametersPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::WeightsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::MetricsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::SummaryPtr)
