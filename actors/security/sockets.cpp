#include "actors/security/sockets.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace motley::actors {
namespace {

constexpr int kHandshakeMs = 10000, kHeartbeatMs = 2000, kSilenceMs = 10000, kConnectMs = 5000;
constexpr int kFirstRetryMs = 100, kLastRetryMs = 5000;
constexpr int kBacklog = 1024;  // that of 100 makes peers wait a second and more while strangers crowd in
constexpr const char* kDomain = "motley";

std::string key_bytes(const std::string& z85) {
  std::string bytes(32, '\0');
  zmq_z85_decode(reinterpret_cast<uint8_t*>(bytes.data()), z85.c_str());
  return bytes;
}

std::vector<zmq::message_t> all_frames(zmq::socket_t& socket) {
  std::vector<zmq::message_t> frames;
  do {
    frames.emplace_back();
    if (!socket.recv(frames.back(), zmq::recv_flags::dontwait)) return {};
  } while (frames.back().more());
  return frames;
}

}  // namespace

void harden(zmq::socket_t& socket, const SocketLimits& limits) {
  socket.set(zmq::sockopt::maxmsgsize, limits.frame_bytes);
  socket.set(zmq::sockopt::sndhwm, limits.queued_messages);
  socket.set(zmq::sockopt::rcvhwm, limits.queued_messages);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
  socket.set(zmq::sockopt::heartbeat_timeout, kSilenceMs);
  socket.set(zmq::sockopt::heartbeat_ttl, kSilenceMs);
  socket.set(zmq::sockopt::connect_timeout, kConnectMs);
  socket.set(zmq::sockopt::reconnect_ivl, kFirstRetryMs);
  socket.set(zmq::sockopt::reconnect_ivl_max, kLastRetryMs);
  socket.set(zmq::sockopt::backlog, kBacklog);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::ipv6, true);
}

void secure_client(zmq::socket_t& socket, const Keys& keys) {
  socket.set(zmq::sockopt::curve_serverkey, keys.curve_public);
  socket.set(zmq::sockopt::curve_publickey, keys.curve_public);
  socket.set(zmq::sockopt::curve_secretkey, keys.curve_secret);
}

void secure_server(zmq::socket_t& socket, const Gatekeeper& gatekeeper) {
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, gatekeeper.keys().curve_secret);
  socket.set(zmq::sockopt::zap_domain, kDomain);
}

Gatekeeper::Gatekeeper(zmq::context_t& context, const Keys& keys)
    : requests_(context, zmq::socket_type::rep), keys_(keys), public_key_(key_bytes(keys.curve_public)) {
  requests_.set(zmq::sockopt::linger, 0);
  requests_.bind("inproc://zeromq.zap.01");
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) throw zmq::error_t();
  thread_ = std::thread([this] { run(); });
}

Gatekeeper::~Gatekeeper() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof one);
  thread_.join();
  ::close(stop_);
}

void Gatekeeper::run() {
  std::array<zmq::pollitem_t, 2> items{{{requests_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, stop_, ZMQ_POLLIN, 0}}};
  try {
    while (true) {
      zmq::poll(items.data(), items.size(), std::chrono::milliseconds(-1));
      if ((items[1].revents & ZMQ_POLLIN) != 0) return;
      if ((items[0].revents & ZMQ_POLLIN) != 0) answer();
    }
  } catch (const zmq::error_t&) {
    // The context ends: no server is left to ask.
  }
}

/// Request: version, number, domain, address, identity, mechanism, key. Answer: version, number, code, words, user,
/// metadata.
void Gatekeeper::answer() {
  const std::vector<zmq::message_t> frames = all_frames(requests_);
  if (frames.size() < 2) return;
  const bool known = frames.size() == 7 && frames[0].to_string_view() == "1.0" &&
                     frames[2].to_string_view() == kDomain && frames[5].to_string_view() == "CURVE" &&
                     frames[6].to_string_view() == public_key_;
  ++(known ? admitted_ : refused_);
  const std::array<std::string_view, 6> reply{
      "1.0", frames[1].to_string_view(), known ? "200" : "400", known ? "in" : "another key", "", ""};
  for (size_t i = 0; i < reply.size(); ++i) {
    requests_.send(zmq::buffer(reply[i]), i + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

}  // namespace motley::actors
