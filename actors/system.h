// The one place that knows CAF's options and its default behaviour: how a system is configured, what an actor does with
// an exception or an unknown message, and how the cause of a death reads.
#pragma once

#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <string>

namespace motley::actors {

struct SystemOptions {
  int64_t threads = 2;   // scheduler's workers; detached actors have threads of their own
  bool network = false;  // load the middleman, for actors in other processes
};

class SystemConfig : public caf::actor_system_config {
 public:
  explicit SystemConfig(const SystemOptions& options = {});
};

/// To be called first by every actor: an exception, or a message that it does not know, ends the actor with an error
/// that carries the text; its monitors get it as the reason. Nothing goes to stdout.
void install_handlers(caf::scheduled_actor* self);
/// The text of an exception of install_handlers; otherwise CAF's own words.
std::string cause_text(caf::actor_system& system, const caf::error& reason);

/// Every request between actors has this limit unless its call says otherwise.
inline constexpr std::chrono::seconds kRequestLimit{60};
/// How long a fleet may take to end after the run before the process gives up on it.
inline constexpr std::chrono::seconds kShutdownLimit{60};

}  // namespace motley::actors
