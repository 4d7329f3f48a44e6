#include "actors/remote/session_server.h"

#include <sys/random.h>

#include <cerrno>
#include <charconv>
#include <system_error>

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kServerPoll{200};
constexpr int kMostAtOnce = 256;  // frames between two looks at what was posted

std::string new_token() {
  unsigned char random[16];
  if (getrandom(random, sizeof(random), 0) != sizeof(random))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  std::string token;
  for (const unsigned char byte : random) {
    constexpr char kDigits[] = "0123456789abcdef";
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

}  // namespace

uint16_t port_of(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  uint16_t port = 0;
  if (colon != std::string::npos) std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
  return port;
}

SessionServer::SessionServer(zmq::context_t& context, SessionServerOptions options)
    : options_(std::move(options)), socket_(context, zmq::socket_type::router) {
  if (options_.secure) options_.secure(socket_);
  socket_.set(zmq::sockopt::router_mandatory, true);
  socket_.bind(options_.endpoint);
  port_ = port_of(socket_.get(zmq::sockopt::last_endpoint));
  thread_ = std::thread([this] { serve(); });
}

SessionServer::~SessionServer() { stop(); }

void SessionServer::stop() {
  if (!thread_.joinable()) return;
  done_ = true;
  posted_.post([] {});
  thread_.join();
  posted_.run();
  hello_ = nullptr;
  peers_.clear();
}

std::string SessionServer::admit(Peer peer) {
  std::string token = new_token();
  posted_.post([this, token, peer = std::move(peer)]() mutable {
    State& state = peers_[token];
    state.peer = std::move(peer);
    state.heard = Clock::now();
  });
  return token;
}

std::string SessionServer::admit(Peer peer, const std::string& route, std::string welcome) {
  std::string token = new_token();
  posted_.post([this, token, route, peer = std::move(peer), welcome = std::move(welcome)]() mutable {
    State& state = peers_[token];
    state.peer = std::move(peer);
    state.route = route;
    state.received = 1;
    state.heard = Clock::now();
    tokens_[route] = token;
    send_to(state, FrameKind::welcome, welcome);
  });
  return token;
}

void SessionServer::set_hello(std::function<void(std::string, std::string)> hello) {
  posted_.post([this, hello = std::move(hello)]() mutable { hello_ = std::move(hello); });
}

void SessionServer::refuse_hello(const std::string& route, const std::string& reason) {
  posted_.post([this, route, reason] { refuse(route, reason); });
}

void SessionServer::send(const std::string& token, FrameKind kind, std::string body) {
  posted_.post([this, token, kind, body = std::move(body)]() mutable {
    const auto found = peers_.find(token);
    if (found == peers_.end()) return;
    if (found->second.route.empty()) {
      found->second.waiting.emplace_back(kind, std::move(body));
    } else {
      send_to(found->second, kind, body);
    }
  });
}

void SessionServer::dismiss(const std::string& token, const std::string& reason) {
  posted_.post([this, token, reason] {
    const auto found = peers_.find(token);
    if (found == peers_.end()) return;
    if (!found->second.route.empty()) {
      if (!reason.empty()) refuse(found->second.route, reason);
      tokens_.erase(found->second.route);
    }
    peers_.erase(found);
  });
}

void SessionServer::serve() {
  while (!done_) {
    zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, posted_.descriptor(), ZMQ_POLLIN, 0}};
    try {
      zmq::poll(items, 2, kServerPoll);
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) continue;
      throw;
    }
    posted_.run();
    receive();
    drop_silent();
  }
}

void SessionServer::receive() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    zmq::message_t route, bytes;
    if (!socket_.recv(route, zmq::recv_flags::dontwait)) return;
    bool more = route.more();
    int parts = 0;
    while (more) {
      zmq::message_t part;
      if (!socket_.recv(part)) break;
      more = part.more();
      if (++parts == 1) bytes = std::move(part);
    }
    const std::string from = route.to_string();
    if (parts == 1) {
      take(from, bytes.to_string_view());
    } else {
      ++refused_;
      refuse(from, "a message of " + std::to_string(parts) + " parts: there is one");
    }
  }
}

void SessionServer::take(const std::string& route, std::string_view bytes) {
  const auto found = tokens_.find(route);
  try {
    const Frame frame = parse_frame(bytes);
    if (found == tokens_.end()) {
      if (frame.kind == FrameKind::hello && frame.number == 0 && hello_)
        hello_(route, std::string(frame.body));
      else
        attach(route, frame);
      return;
    }
    State& state = peers_.at(found->second);
    if (frame.number != state.received) throw WireError("a frame of its connection is missing");
    ++state.received;
    state.heard = Clock::now();
    if (frame.kind == FrameKind::ping)
      send_to(state, FrameKind::pong, {});
    else
      state.peer.frame(frame.kind, std::string(frame.body));
  } catch (const WireError& error) {
    ++refused_;
    refuse(route, error.what());
    if (found != tokens_.end()) close(std::string(found->second), error.what());
  }
}

void SessionServer::attach(const std::string& route, const Frame& frame) {
  if (frame.kind != FrameKind::attach || frame.number != 0) throw WireError("it has not attached");
  const auto found = peers_.find(parse_text(frame.body));
  if (found == peers_.end()) throw WireError("it attaches with a token that is none, or no longer one");
  State& state = found->second;
  if (!state.route.empty()) throw WireError("it attaches with the token of another");
  state.route = route;
  state.received = 1;
  state.heard = Clock::now();
  tokens_[route] = found->first;
  send_to(state, FrameKind::attached, {});
  for (const auto& [kind, body] : std::exchange(state.waiting, {})) send_to(state, kind, body);
}

void SessionServer::send_to(State& state, FrameKind kind, std::string_view body) {
  const std::string frame = make_frame(kind, state.sent++, body);
  try {
    socket_.send(zmq::buffer(state.route), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    socket_.send(zmq::buffer(frame), zmq::send_flags::dontwait);
  } catch (const zmq::error_t&) {
    // The connection is gone: its silence, or its next one, tells.
  }
}

void SessionServer::refuse(const std::string& route, const std::string& reason) {
  State nobody;
  nobody.route = route;
  send_to(nobody, FrameKind::refused, text_body(reason));
}

void SessionServer::close(const std::string& token, const std::string& cause) {
  const auto found = peers_.find(token);
  if (found == peers_.end()) return;
  const auto closed = found->second.peer.closed;
  if (!found->second.route.empty()) tokens_.erase(found->second.route);
  peers_.erase(found);
  closed(cause);
}

void SessionServer::drop_silent() {
  const auto now = Clock::now();
  std::vector<std::string> silent;
  for (const auto& [token, state] : peers_)
    if (now - state.heard > options_.silence) silent.push_back(token);
  for (const std::string& token : silent)
    close(token, "it has said nothing for " + std::to_string(options_.silence.count() / 1000) + " s");
}

}  // namespace motley::actors
