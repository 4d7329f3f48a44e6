#include "actors/remote/gate.h"

#include <algorithm>

#include "actors/remote/admission.h"
#include "actors/remote/remote_evaluator.h"
#include "actors/remote/remote_learner.h"
#include "actors/remote/remote_worker.h"
#include "actors/system.h"
#include "actors/version.h"
#include "tensor/config_json.h"

namespace motley::actors {
namespace {

constexpr std::chrono::seconds kFarewell{2};  // for peers to hear that the run is over

}  // namespace

caf::behavior Gate::start(FleetPtr fleet) {
  fleet_ = std::move(fleet);
  self_->set_down_handler([this](const caf::down_msg& message) { down(message); });
  self_->set_default_handler(caf::drop);  // whatever strangers send
  self_->set_exit_handler([this](const caf::exit_msg& message) {
    // Others can send exits, too: only who holds the fleet may end it.
    if (!supervisor_ || message.source == supervisor_) close();
  });
  return {
      [this](const OpenGate& open) {
        if (plane_) return;
        plane_ = open.plane;
        router_ = open.router;
        supervisor_ = open.supervisor;
        environment_ = open.environment;
        learner_ = open.learner;
        const auto me = caf::actor_cast<caf::actor>(self_);
        fleet_->hub->sessions().set_hello([me](std::string route, std::string body) {
          caf::anon_send(me, PeerHello{std::move(route)}, std::make_shared<const std::string>(std::move(body)));
        });
      },
      [this](const Hello& message) { return hello(message); },
      [this](const PeerHello& message, const FrameBodyPtr& body) { peer_hello(message.route, *body); },
      [this](const RetireReplica& message) {
        if (self_->current_sender() != supervisor_) return;
        if (const Member* const found = member(message.replica)) self_->send(found->proxy, Retire{});
      },
      [this](const ReplicaLost& message) {
        if (self_->current_sender() != supervisor_) return;
        if (const Member* const found = member(message.replica)) self_->send(found->proxy, PeerLost{message.cause});
      },
      [this](Farewell) {
        if (!closing_) return;
        for (const auto& [address, each] : members_) self_->send_exit(each.proxy, caf::exit_reason::user_shutdown);
        members_.clear();
        quit_if_alone();
      },
  };
}

Welcome Gate::welcome() const {
  return {.session_port = fleet_->hub->sessions().port(),
          .silence_ms = static_cast<uint64_t>(fleet_->experiment.run.lost_after) * 1000};
}

Welcome Gate::welcome(size_t g) const {
  const SamplerGroupOptions& group = fleet_->experiment.samplers[g];
  const kernels::NumericProfile profile = fleet_->experiment.group_profile(group);
  Welcome answer = welcome();
  answer.group = group.name;
  answer.profile = group.profile == "trainer" ? fleet_->experiment.trainer.profile : group.profile;
  answer.kernels = group.kernels;
  answer.profile_text = kernels::describe(profile);
  answer.model = config_to_json(fleet_->model);
  answer.weights = weights_topic(*fleet_, g);
  answer.max_sequences = static_cast<uint64_t>(group.max_sequences);
  answer.graphs = group.graphs;
  answer.recompute_kv = fleet_->experiment.kv_on_swap() == KvOnSwap::recompute;
  answer.fetch_port = fleet_->hub->fetch_port();
  answer.announce_port = fleet_->hub->announce_port();
  return answer;
}

caf::result<Welcome> Gate::hello(const Hello& hello) {
  if (!plane_) return caf::make_error(caf::sec::runtime_error, std::string("the run is starting"));
  if (closing_) return caf::make_error(caf::sec::runtime_error, std::string("the run is over"));
  const std::string learner_name = "learner (" + printable(hello.name) + ")";
  const bool comes_back = hello.role == "learner" && std::any_of(members_.begin(), members_.end(), [&](const auto& m) {
                            return m.second.name == learner_name;
                          });
  if (comes_back)
    return caf::make_error(caf::sec::runtime_error, std::string("the run has not noticed yet that it was away"));
  if (const std::string reason = admission_refusal(*fleet_, hello); !reason.empty()) {
    self_->send(supervisor_,
                Note{printable(hello.name) + " may not join as a " + printable(hello.role) + ": " + reason});
    return Welcome{.refusal = reason};
  }
  const auto process = caf::actor_cast<caf::actor>(self_->current_sender());
  Welcome answer;
  if (hello.role == "worker") {
    answer = welcome();
    answer.proxy = add_worker(hello, process);
  } else if (hello.role == "learner") {
    answer = welcome();
    answer.proxy = add_learner(learner_name, process);
  } else if (hello.role == "evaluator") {
    answer = welcome();
    answer.proxy = add_evaluator(hello, process);
  } else {
    const size_t group = *group_of(*fleet_, hello);
    answer = welcome(group);
    answer.replica = fleet_->next_replica++;
    answer.proxy = add(answer, hello.name,
                       {.replica = answer.replica, .group = group, .instance = hello.instance, .process = process});
  }
  auto promise = self_->make_response_promise<Welcome>();
  self_->request(answer.proxy, kRequestLimit, TokenQuery{})
      .then(
          [promise, answer](const std::string& token) mutable {
            answer.token = token;
            promise.deliver(answer);
          },
          [promise](caf::error& error) mutable { promise.deliver(error); });
  return promise;
}

caf::actor Gate::add(const Welcome& welcome, const std::string& peer_name, const RemotePeer& peer) {
  caf::actor proxy = self_->spawn(remote_sampler, fleet_, peer, plane_, router_);
  const std::string name =
      "sampler " + welcome.group + "/" + std::to_string(welcome.replica) + " (" + printable(peer_name) + ")";
  add({.name = name,
       .proxy = proxy,
       .process = peer.process,
       .then = "its sessions go on elsewhere from their tokens",
       .replica = welcome.replica});
  return proxy;
}

caf::actor Gate::add_worker(const Hello& hello, const caf::actor& process) {
  const std::string name = "worker " + std::to_string(next_worker_++) + " (" + printable(hello.name) + ")";
  caf::actor proxy = self_->spawn(remote_worker, fleet_, WorkerPeer{process, name}, environment_, supervisor_);
  add({.name = name,
       .proxy = proxy,
       .process = process,
       .then = "its calls are made elsewhere, its interactions begin anew"});
  return proxy;
}

caf::actor Gate::add_learner(const std::string& name, const caf::actor& process) {
  caf::actor proxy = self_->spawn(remote_learner, fleet_, process, learner_);
  add({.name = name,
       .proxy = proxy,
       .process = process,
       .then = "the next one goes on from the state that the run holds"});
  return proxy;
}

caf::actor Gate::add_evaluator(const Hello& hello, const caf::actor& process) {
  const std::string name = "evaluator " + std::to_string(next_evaluator_++) + " (" + printable(hello.name) + ")";
  caf::actor proxy = self_->spawn(remote_evaluator, fleet_, EvaluatorPeer{process, name}, supervisor_);
  add({.name = name,
       .proxy = proxy,
       .process = process,
       .then = "an evaluation that it has under way is made by the run itself"});
  return proxy;
}

void Gate::add(Member member) {
  self_->monitor(member.proxy);
  self_->send(supervisor_, Note{member.name + " joins"});
  const caf::actor_addr address = member.proxy.address();
  members_[address] = std::move(member);
}

void Gate::peer_hello(const std::string& route, const std::string& body) {
  SessionServer& sessions = fleet_->hub->sessions();
  if (closing_) return sessions.refuse_hello(route, "the run is over");
  HelloBody said;
  try {
    said = parse_hello(body);
  } catch (const WireError& error) {
    return sessions.refuse_hello(route, error.what());
  }
  const Hello hello{
      .protocol = said.protocol, .version = version(), .name = said.name, .role = "sampler", .group = said.group};
  std::string reason = admission_refusal(*fleet_, hello);
  if (reason.empty() && fleet_->experiment.record_kind() != RecordKind::sampled)
    reason =
        "this run records more than the drawn token's probability (sampling.top_p, sampling.top_k or its "
        "correction ask for it), which only motley's own samplers report";
  if (!reason.empty()) {
    self_->send(supervisor_, Note{printable(said.name) + " may not join as a sampler: " + reason});
    return sessions.refuse_hello(route, reason);
  }
  const size_t group = *group_of(*fleet_, hello);
  Welcome place = welcome(group);
  place.replica = fleet_->next_replica++;
  add(place, said.name,
      {.replica = place.replica,
       .group = group,
       .route = route,
       .welcome = welcome_body({.replica = place.replica,
                                .slots = place.max_sequences,
                                .vocabulary = static_cast<uint64_t>(fleet_->tokenizer.size()),
                                .silence_ms = place.silence_ms,
                                .group = place.group,
                                .profile = place.profile_text,
                                .model = place.model,
                                .weights = place.weights,
                                .fetch_port = place.fetch_port,
                                .announce_port = place.announce_port})});
}

Gate::Member* Gate::member(uint64_t replica) {
  for (auto& [address, member] : members_)
    if (member.replica == replica) return &member;
  return nullptr;
}

void Gate::down(const caf::down_msg& message) {
  const auto found = members_.extract(message.source);
  if (found.empty()) return;
  const Member& gone = found.mapped();
  if (!closing_) {
    const bool left = message.reason == caf::exit_reason::normal;
    const std::string cause = left ? "it left" : cause_text(self_->system(), message.reason);
    if (gone.replica && !left) self_->send(router_, ReplicaLost{*gone.replica, cause});
    if (gone.replica) self_->send(plane_, ReplicaLost{*gone.replica, cause});
    self_->send(supervisor_, Note{gone.name + (left ? " left" : " was lost (" + cause + ")") + "; " + gone.then});
  }
  quit_if_alone();
}

void Gate::close() {
  if (std::exchange(closing_, true)) return;
  for (const auto& [address, member] : members_) {
    if (member.process)
      self_->send(member.process, Over{fleet_->finished});
    else
      self_->send_exit(member.proxy, caf::exit_reason::user_shutdown);
  }
  self_->delayed_send(self_, kFarewell, Farewell{});
  quit_if_alone();
}

void Gate::quit_if_alone() {
  if (closing_ && members_.empty()) self_->quit(caf::exit_reason::user_shutdown);
}

caf::behavior gate(caf::stateful_actor<Gate>* self, FleetPtr fleet) {
  install_handlers(self);
  return self->state.start(std::move(fleet));
}

}  // namespace motley::actors
