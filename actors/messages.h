// All messages between actors. Plain structs with their wire form: no floating-point members (CAF 0.17 loses NaN, -0
// and denormals, and loops for ever on infinities), nothing over 64 KiB. Bulk is a shared pointer that travels beside
// its message inside the process (the names ending in Ptr below). Who sends what to whom: docs/actors.md.
#pragma once

#include <caf/all.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/decoder.h"
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
  bool remote = false;  // its weights travel: they are quantized for the CPU
};
struct SwapWeights {
  uint64_t version = 0, digest = 0;
};
struct WeightsLive {
  uint64_t replica = 0, version = 0;
};
struct RolledOut {  // so long after its step every sampler had the version, or a newer one
  uint64_t version = 0, nanoseconds = 0;
};
struct QuantizeTick {};

// Sessions: environment -> router -> samplers, and back.
struct OpenSessions {
  uint64_t count = 0;
};
struct Decode {
  uint64_t count = 0;
};
struct Decoded {
  uint64_t replica = 0;
  DecodeCounts counts;
};
struct SessionsFinished {
  uint64_t count = 0;
};
struct DecodeTick {};
struct ReplicaReady {
  uint64_t replica = 0, group = 0;
  std::string instance;  // of a provisioner; empty: nobody's
};
struct ReplicaLost {
  uint64_t replica = 0;
  std::string cause;
  bool replaced = false;  // another of its group is on its way
};
struct ReplicaLeft {  // by its own will: its sessions have lost nothing
  uint64_t replica = 0;
};
struct ReplicaHangs {  // it has sessions and says nothing
  uint64_t replica = 0;
};
struct WatchTick {};
struct Calibrate {};
struct Calibrated {
  uint64_t replica = 0, tokens = 0, busy_ns = 0;
};
struct FleetReady {};
struct RateQuery {};
struct GroupRates {  // since the start, by group
  std::vector<uint64_t> tokens, busy_ns, steps, rows, prefill_rows, shared_rows, kept_rows;
  std::vector<uint64_t> replicas, replica_ns;  // that are there; the time that replicas have been there, summed
  int64_t at_ns = 0;                           // when this was so, by the steady clock
};

// Replicas that come and go while the run goes on: autoscaler -> supervisor, router -> samplers.
struct AddReplica {  // answered with its number
  uint64_t group = 0;
};
struct RetireReplica {
  uint64_t replica = 0;
};
struct Retire {};

// What the autoscaler goes by (router, learner), and whom it orders (the provisioners of its groups).
struct FleetQuery {};
struct FleetSeen {
  std::vector<uint64_t> replicas, groups, serving, sessions, tokens_per_second;  // by replica; serving: 0, 1
  std::vector<std::string> instances;                                            // by replica
  std::vector<uint64_t> group_tokens, busy_ns;                                   // by group, since the start
  uint64_t tokens = 0, queued = 0;  // drawn since the start; sessions without a slot
};
struct LearnerWaits {};
struct LearnerTakes {};
struct ScaleTick {};
struct StartInstance {  // answered with InstanceStarted
  uint64_t number = 0;
};
struct InstanceStarted {
  uint64_t group = 0, number = 0;
  std::string failure;
};
struct StopInstance {  // answered with InstanceStopped
  uint64_t number = 0;
};
struct InstanceStopped {
  uint64_t group = 0, number = 0;
  std::string failure;
};
struct ListInstances {};
struct InstanceList {
  uint64_t group = 0;
  std::vector<uint64_t> numbers;
  std::vector<std::string> endings;  // empty: it runs
  std::string failure;
};
struct TendTick {};

// Samplers, workers, evaluators and a learner in other processes: they -> gate, and back.
struct Hello {
  uint64_t protocol = 0;
  std::string version, name;    // of motley; of the peer, for messages: host and process
  std::string role;             // "sampler", "worker", "learner", "evaluator"; what follows is a sampler's
  std::string group, hardware;  // empty: the run chooses by the hardware, an accelerator's name or empty
  std::string model;            // config.json that it expects; empty: the run's
  std::string instance;         // of a provisioner; empty: nobody's
};
struct Welcome {
  std::string refusal;  // not empty: it may not join, and trying again is of no use
  // Of a sampler:
  uint64_t replica = 0;
  std::string group, profile, kernels, profile_text, model, weights;  // model: config.json; weights: their topic
  uint64_t max_sequences = 0;
  bool graphs = true, recompute_kv = false;
  // Of everybody; more than fits here is the first frame at the sessions' socket ("setting"):
  std::string token;  // for the sessions' socket
  uint64_t session_port = 0, fetch_port = 0, announce_port = 0;
  uint64_t silence_ms = 0;  // after which either side takes the other for lost
  caf::actor proxy;
};
struct Over {  // the run is over; not finished: it may be resumed
  bool finished = false;
};

struct OpenGate {
  caf::actor plane, router, supervisor, environment, learner;
};
struct LearnerLeaves {};  // proxy -> learner: who computes its steps would like to go
struct Farewell {};
struct TokenQuery {};  // of a proxy: what its peer attaches with
struct PeerHello {     // of an engine that speaks frames alone; the body travels beside it
  std::string route;
};
struct PeerFrame {  // FrameKind; the body travels beside it
  uint8_t kind = 0;
};
struct PeerClosed {  // its connection
  std::string cause;
};
struct PeerLost {
  std::string cause;
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
  uint64_t session = 0, number = 0;  // number: of the call
};
struct Worked {
  uint64_t session = 0;
};
struct Probe {  // of a call that hangs: comes back when it is over
  uint64_t number = 0;
};
// Workers of other processes, by their proxies: proxy -> environment.
struct AddWorker {
  uint64_t slots = 0;  // calls at once
};
struct WorkerCloses {};  // it takes no more calls
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
MOTLEY_MESSAGE(Subscribe, m.replica, m.group, m.remote)
MOTLEY_MESSAGE(SwapWeights, m.version, m.digest)
MOTLEY_MESSAGE(WeightsLive, m.replica, m.version)
MOTLEY_MESSAGE(RolledOut, m.version, m.nanoseconds)
MOTLEY_MESSAGE(QuantizeTick)
MOTLEY_MESSAGE(OpenSessions, m.count)
MOTLEY_MESSAGE(Decode, m.count)
MOTLEY_MESSAGE(DecodeCounts, m.tokens, m.busy_ns, m.full_tokens, m.full_ns, m.steps, m.rows, m.prefill_rows,
               m.shared_rows, m.kept_rows)
MOTLEY_MESSAGE(Decoded, m.replica, m.counts)
MOTLEY_MESSAGE(SessionsFinished, m.count)
MOTLEY_MESSAGE(DecodeTick)
MOTLEY_MESSAGE(ReplicaReady, m.replica, m.group, m.instance)
MOTLEY_MESSAGE(ReplicaLost, m.replica, m.cause, m.replaced)
MOTLEY_MESSAGE(ReplicaLeft, m.replica)
MOTLEY_MESSAGE(ReplicaHangs, m.replica)
MOTLEY_MESSAGE(WatchTick)
MOTLEY_MESSAGE(Calibrate)
MOTLEY_MESSAGE(Calibrated, m.replica, m.tokens, m.busy_ns)
MOTLEY_MESSAGE(FleetReady)
MOTLEY_MESSAGE(RateQuery)
MOTLEY_MESSAGE(GroupRates, m.tokens, m.busy_ns, m.steps, m.rows, m.prefill_rows, m.shared_rows, m.kept_rows, m.replicas,
               m.replica_ns, m.at_ns)
MOTLEY_MESSAGE(AddReplica, m.group)
MOTLEY_MESSAGE(RetireReplica, m.replica)
MOTLEY_MESSAGE(Retire)
MOTLEY_MESSAGE(FleetQuery)
MOTLEY_MESSAGE(FleetSeen, m.replicas, m.groups, m.serving, m.sessions, m.tokens_per_second, m.instances, m.group_tokens,
               m.busy_ns, m.tokens, m.queued)
MOTLEY_MESSAGE(LearnerWaits)
MOTLEY_MESSAGE(LearnerTakes)
MOTLEY_MESSAGE(ScaleTick)
MOTLEY_MESSAGE(StartInstance, m.number)
MOTLEY_MESSAGE(InstanceStarted, m.group, m.number, m.failure)
MOTLEY_MESSAGE(StopInstance, m.number)
MOTLEY_MESSAGE(InstanceStopped, m.group, m.number, m.failure)
MOTLEY_MESSAGE(ListInstances)
MOTLEY_MESSAGE(InstanceList, m.group, m.numbers, m.endings, m.failure)
MOTLEY_MESSAGE(TendTick)
MOTLEY_MESSAGE(Hello, m.protocol, m.version, m.name, m.role, m.group, m.hardware, m.model, m.instance)
MOTLEY_MESSAGE(Welcome, m.refusal, m.replica, m.group, m.profile, m.kernels, m.profile_text, m.model, m.weights,
               m.max_sequences, m.graphs, m.recompute_kv, m.token, m.session_port, m.fetch_port, m.announce_port,
               m.silence_ms, m.proxy)
MOTLEY_MESSAGE(Over, m.finished)
MOTLEY_MESSAGE(OpenGate, m.plane, m.router, m.supervisor, m.environment, m.learner)
MOTLEY_MESSAGE(LearnerLeaves)
MOTLEY_MESSAGE(Farewell)
MOTLEY_MESSAGE(TokenQuery)
MOTLEY_MESSAGE(PeerHello, m.route)
MOTLEY_MESSAGE(PeerFrame, m.kind)
MOTLEY_MESSAGE(PeerClosed, m.cause)
MOTLEY_MESSAGE(PeerLost, m.cause)
MOTLEY_MESSAGE(StartIssuing, m.next_prompt, m.again)
MOTLEY_MESSAGE(IssueBatch, m.first_prompt, m.prompts)
MOTLEY_MESSAGE(Credits, m.episodes)
MOTLEY_MESSAGE(Work, m.session, m.number)
MOTLEY_MESSAGE(Worked, m.session)
MOTLEY_MESSAGE(Probe, m.number)
MOTLEY_MESSAGE(AddWorker, m.slots)
MOTLEY_MESSAGE(WorkerCloses)
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
CAF_ADD_TYPE_ID(motley, (motley::actors::RolledOut))
CAF_ADD_TYPE_ID(motley, (motley::actors::QuantizeTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::OpenSessions))
CAF_ADD_TYPE_ID(motley, (motley::actors::Decode))
CAF_ADD_TYPE_ID(motley, (motley::actors::Decoded))
CAF_ADD_TYPE_ID(motley, (motley::actors::SessionsFinished))
CAF_ADD_TYPE_ID(motley, (motley::actors::DecodeTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::ReplicaReady))
CAF_ADD_TYPE_ID(motley, (motley::actors::ReplicaLost))
CAF_ADD_TYPE_ID(motley, (motley::actors::ReplicaLeft))
CAF_ADD_TYPE_ID(motley, (motley::actors::ReplicaHangs))
CAF_ADD_TYPE_ID(motley, (motley::actors::WatchTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::Calibrate))
CAF_ADD_TYPE_ID(motley, (motley::actors::Calibrated))
CAF_ADD_TYPE_ID(motley, (motley::actors::FleetReady))
CAF_ADD_TYPE_ID(motley, (motley::actors::RateQuery))
CAF_ADD_TYPE_ID(motley, (motley::actors::GroupRates))
CAF_ADD_TYPE_ID(motley, (motley::actors::AddReplica))
CAF_ADD_TYPE_ID(motley, (motley::actors::RetireReplica))
CAF_ADD_TYPE_ID(motley, (motley::actors::Retire))
CAF_ADD_TYPE_ID(motley, (motley::actors::FleetQuery))
CAF_ADD_TYPE_ID(motley, (motley::actors::FleetSeen))
CAF_ADD_TYPE_ID(motley, (motley::actors::LearnerWaits))
CAF_ADD_TYPE_ID(motley, (motley::actors::LearnerTakes))
CAF_ADD_TYPE_ID(motley, (motley::actors::ScaleTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::StartInstance))
CAF_ADD_TYPE_ID(motley, (motley::actors::InstanceStarted))
CAF_ADD_TYPE_ID(motley, (motley::actors::StopInstance))
CAF_ADD_TYPE_ID(motley, (motley::actors::InstanceStopped))
CAF_ADD_TYPE_ID(motley, (motley::actors::ListInstances))
CAF_ADD_TYPE_ID(motley, (motley::actors::InstanceList))
CAF_ADD_TYPE_ID(motley, (motley::actors::TendTick))
CAF_ADD_TYPE_ID(motley, (motley::actors::Hello))
CAF_ADD_TYPE_ID(motley, (motley::actors::Welcome))
CAF_ADD_TYPE_ID(motley, (motley::actors::Over))
CAF_ADD_TYPE_ID(motley, (motley::actors::OpenGate))
CAF_ADD_TYPE_ID(motley, (motley::actors::LearnerLeaves))
CAF_ADD_TYPE_ID(motley, (motley::actors::Farewell))
CAF_ADD_TYPE_ID(motley, (motley::actors::TokenQuery))
CAF_ADD_TYPE_ID(motley, (motley::actors::PeerHello))
CAF_ADD_TYPE_ID(motley, (motley::actors::PeerFrame))
CAF_ADD_TYPE_ID(motley, (motley::actors::PeerClosed))
CAF_ADD_TYPE_ID(motley, (motley::actors::PeerLost))
CAF_ADD_TYPE_ID(motley, (motley::actors::StartIssuing))
CAF_ADD_TYPE_ID(motley, (motley::actors::IssueBatch))
CAF_ADD_TYPE_ID(motley, (motley::actors::Credits))
CAF_ADD_TYPE_ID(motley, (motley::actors::Work))
CAF_ADD_TYPE_ID(motley, (motley::actors::Worked))
CAF_ADD_TYPE_ID(motley, (motley::actors::Probe))
CAF_ADD_TYPE_ID(motley, (motley::actors::AddWorker))
CAF_ADD_TYPE_ID(motley, (motley::actors::WorkerCloses))
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
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::FrameBodyPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::StepOutputsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::FinishedSessionsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::EpisodeJobPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::EpisodeStepPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::ParametersPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::WeightsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::MetricsPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(motley::actors::SummaryPtr)
