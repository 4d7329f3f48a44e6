#include "actors/system.h"

#include <caf/io/middleman.hpp>

#include "actors/messages.h"

namespace motley::actors {

SystemConfig::SystemConfig(const SystemOptions& options) {
  add_message_types<caf::id_block::motley>();
  set("scheduler.policy", caf::atom("sharing"));  // stealing polls: 10 times the round trip, 1 % idle CPU
  set("scheduler.max-threads", static_cast<size_t>(options.threads));
  if (!options.network) return;
  load<caf::io::middleman>();
  // Both are needed to notice a frozen peer; shorter heartbeats than 2 s drop connections that are shaking hands.
  set("middleman.heartbeat-interval", caf::timespan{std::chrono::seconds(2)});
  set("middleman.connection-timeout", caf::timespan{std::chrono::seconds(10)});
  set("middleman.app-identifiers", std::vector<std::string>{"motley-1"});
}

void install_handlers(caf::scheduled_actor* self) {
  self->set_exception_handler([](caf::scheduled_actor*, std::exception_ptr& pointer) -> caf::error {
    std::string text = "an exception that is no std::exception";
    try {
      std::rethrow_exception(pointer);
    } catch (const std::exception& error) {
      text = error.what();
    } catch (...) {
    }
    return caf::make_error(caf::sec::runtime_error, text);
  });
  self->set_default_handler([](caf::scheduled_actor* actor, caf::message_view& view) -> caf::result<caf::message> {
    const std::string text = "a message that it does not know: " + view.content().stringify();
    actor->quit(caf::make_error(caf::sec::runtime_error, text));
    return caf::make_error(caf::sec::unexpected_message, text);
  });
}

std::string cause_text(caf::actor_system& system, const caf::error& reason) {
  const caf::message& context = reason.context();
  if (context.size() == 1 && context.match_element<std::string>(0)) return context.get_as<std::string>(0);
  return system.render(reason);
}

}  // namespace motley::actors
