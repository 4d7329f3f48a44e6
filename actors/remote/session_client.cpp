#include "actors/remote/session_client.h"

#include <cerrno>

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kClientPoll{200};
constexpr int kPings = 5;  // within a time of silence

}  // namespace

SessionClient::SessionClient(zmq::context_t& context, SessionClientOptions options, Events events)
    : options_(std::move(options)),
      events_(std::move(events)),
      socket_(context, zmq::socket_type::dealer),
      heard_(Clock::now()),
      spoke_(heard_) {
  if (options_.secure) options_.secure(socket_);
  socket_.set(zmq::sockopt::linger, 500);  // the last report and the farewell
  socket_.connect(options_.endpoint);
  thread_ = std::thread([this] { serve(); });
}

SessionClient::~SessionClient() {
  posted_.post([this] { done_ = true; });
  thread_.join();
}

void SessionClient::send(FrameKind kind, std::string body) {
  posted_.post([this, kind, body = std::move(body)] { send_now(kind, body); });
}

void SessionClient::serve() {
  send_now(FrameKind::attach, text_body(options_.token));
  while (!done_) {
    zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, posted_.descriptor(), ZMQ_POLLIN, 0}};
    try {
      zmq::poll(items, 2, kClientPoll);
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
    posted_.run();
    receive();
    const auto now = Clock::now();
    if (now - spoke_ > options_.silence / kPings) send_now(FrameKind::ping, {});
    if (now - heard_ > options_.silence)
      close("the run has said nothing for " + std::to_string(options_.silence.count() / 1000) + " s");
  }
}

void SessionClient::receive() {
  for (zmq::message_t bytes; socket_.recv(bytes, zmq::recv_flags::dontwait);) take(bytes.to_string_view());
}

void SessionClient::take(std::string_view bytes) {
  if (closed_) return;
  try {
    const Frame frame = parse_frame(bytes);
    if (frame.kind == FrameKind::refused) {
      close("the run refuses it: " + parse_text(frame.body));
      return;
    }
    if (frame.number != received_) throw WireError("a frame of the run is missing");
    ++received_;
    heard_ = Clock::now();
    if (frame.kind != FrameKind::pong) events_.frame(frame.kind, std::string(frame.body));
  } catch (const WireError& error) {
    close(std::string("what the run sent cannot be read: ") + error.what());
  }
}

void SessionClient::send_now(FrameKind kind, std::string_view body) {
  if (closed_) return;
  const std::string frame = make_frame(kind, sent_++, body);
  spoke_ = Clock::now();
  try {
    socket_.send(zmq::buffer(frame), zmq::send_flags::dontwait);
  } catch (const zmq::error_t& error) {
    close(std::string("nothing can be sent to the run: ") + error.what());
  }
}

void SessionClient::close(const std::string& cause) {
  if (std::exchange(closed_, true)) return;
  events_.closed(cause);
}

}  // namespace motley::actors
