#include "actors/remote/line_peer.h"

#include "actors/messages.h"

namespace motley::actors {

LinePeer admit_line(SessionServer& sessions, const caf::actor& proxy, bool (*of_line)(FrameKind kind)) {
  const auto token = std::make_shared<std::string>();
  auto line = std::make_shared<PeerLine>(
      [server = &sessions, token](FrameKind kind, std::string body) { server->send(*token, kind, std::move(body)); },
      [proxy](const std::string& cause) { caf::anon_send(proxy, PeerLost{cause}); });
  *token = sessions.admit({.frame =
                               [proxy, line, of_line](FrameKind kind, std::string body) {
                                 if (of_line(kind)) return line->frame(kind, std::move(body));
                                 caf::anon_send(proxy, PeerFrame{static_cast<uint8_t>(kind)},
                                                std::make_shared<const std::string>(std::move(body)));
                               },
                           .closed =
                               [proxy, line](const std::string& cause) {
                                 line->closed(cause);
                                 caf::anon_send(proxy, PeerClosed{cause});
                               }});
  return {*token, std::move(line)};
}

}  // namespace motley::actors
