// The gate: the one actor that other processes reach. It looks at who wants to join, gives each a proxy, and says in
// the log who came and who went.
#pragma once

#include "actors/messages.h"
#include "actors/remote/remote_sampler.h"

namespace motley::actors {

class Gate {
 public:
  explicit Gate(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet);

 private:
  struct Member {
    std::string name;  // for messages
    caf::actor proxy, process;
    std::string then{};                 // of its work when it is gone, for messages
    std::optional<uint64_t> replica{};  // of a sampler
  };
  caf::result<Welcome> hello(const Hello& hello);
  /// Of an engine that speaks frames alone (docs/sampler-protocol.md).
  void peer_hello(const std::string& route, const std::string& body);
  caf::actor add(const Welcome& welcome, const std::string& name, const RemotePeer& peer);
  caf::actor add_worker(const Hello& hello, const caf::actor& process);
  caf::actor add_learner(const std::string& name, const caf::actor& process);
  caf::actor add_evaluator(const Hello& hello, const caf::actor& process);
  void add(Member member);
  /// Of anybody, and of a sampler of the group.
  Welcome welcome() const;
  Welcome welcome(size_t group) const;
  void down(const caf::down_msg& message);
  Member* member(uint64_t replica);
  /// Tells everybody that the run is over, and ends when they have gone or a moment has passed.
  void close();
  void quit_if_alone();

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor plane_, router_, supervisor_, environment_, learner_;  // null before the fleet is there
  std::map<caf::actor_addr, Member> members_;                       // by the proxy
  uint64_t next_worker_ = 0, next_evaluator_ = 0;
  bool closing_ = false;
};

caf::behavior gate(caf::stateful_actor<Gate>* self, FleetPtr fleet);

}  // namespace motley::actors
