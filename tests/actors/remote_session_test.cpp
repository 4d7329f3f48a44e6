// The sessions' sockets: peers that keep to the protocol, and all others.
#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>

#include "actors/remote/session_client.h"
#include "actors/remote/session_server.h"

namespace motley::actors {
namespace {

using std::chrono::milliseconds;

/// What one end heard.
class Heard {
 public:
  void frame(FrameKind kind, const std::string& body) { add(std::to_string(static_cast<int>(kind)) + " " + body); }
  void closed(const std::string& cause) { add("closed: " + cause); }
  bool wait_for(const std::string& beginning) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] {
      return std::any_of(all_.begin(), all_.end(),
                         [&](const std::string& text) { return text.starts_with(beginning); });
    });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    all_.push_back(text);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
};

struct Stage {
  explicit Stage(milliseconds silence = milliseconds(10000))
      : server(context, {.endpoint = "tcp://127.0.0.1:*", .silence = silence}) {
    endpoint = "tcp://127.0.0.1:" + std::to_string(server.port());
    token = server.admit({.frame = [this](FrameKind kind, const std::string& body) { peer.frame(kind, body); },
                          .closed = [this](const std::string& cause) { peer.closed(cause); }});
  }
  std::unique_ptr<SessionClient> client(const std::string& with, Heard& heard) {
    return std::make_unique<SessionClient>(
        context, SessionClientOptions{.endpoint = endpoint, .token = with},
        SessionClient::Events{.frame = [&](FrameKind kind, const std::string& body) { heard.frame(kind, body); },
                              .closed = [&](const std::string& cause) { heard.closed(cause); }});
  }
  /// A peer that sends what it likes.
  zmq::socket_t dealer() {
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 10000);
    socket.connect(endpoint);
    return socket;
  }
  zmq::context_t context;
  Heard peer;  // what the server heard of the admitted one
  SessionServer server;
  std::string endpoint, token;
};

std::string answer_of(zmq::socket_t& socket) {
  zmq::message_t message;
  REQUIRE(socket.recv(message));
  const Frame frame = parse_frame(message.to_string_view());
  return frame.kind == FrameKind::refused ? "refused: " + parse_text(frame.body)
                                          : std::to_string(static_cast<int>(frame.kind));
}
void send(zmq::socket_t& socket, const std::string& bytes) { socket.send(zmq::buffer(bytes)); }

}  // namespace

TEST_CASE("frames go both ways in order; what is sent before a peer has attached waits for it") {
  Stage stage;
  stage.server.send(stage.token, FrameKind::decode, "first");
  Heard heard;
  const auto client = stage.client(stage.token, heard);
  for (int i = 0; i < 100; ++i) {
    client->send(FrameKind::report, std::to_string(i));
    stage.server.send(stage.token, FrameKind::decode, std::to_string(i));
  }
  CHECK(stage.peer.wait_for("3 99"));
  CHECK(stage.peer.count() == 100);
  CHECK(heard.wait_for("18 99"));
  CHECK(heard.count() == 102);
  stage.server.dismiss(stage.token, "the run is over");
  CHECK(heard.wait_for("closed: the run refuses it: the run is over"));
  CHECK(stage.server.refused() == 0);
}

TEST_CASE("strangers are refused, and harm nobody") {
  Stage stage;
  Heard heard, stranger, thief;
  const auto client = stage.client(stage.token, heard);
  REQUIRE(heard.wait_for("16"));
  const auto without = stage.client("0123", stranger);
  CHECK(stranger.wait_for("closed: the run refuses it: it attaches with a token that is none"));
  const auto again = stage.client(stage.token, thief);
  CHECK(thief.wait_for("closed: the run refuses it: it attaches with the token of another"));
  zmq::socket_t raw = stage.dealer();
  for (const std::string& bytes : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, '\xff'),
                                   make_frame(FrameKind::report, 0, "x"), make_frame(FrameKind::attach, 0, "\xc1"),
                                   make_frame(FrameKind::attach, 1, text_body(stage.token))}) {
    send(raw, bytes);
    CHECK(answer_of(raw).starts_with("refused: "));
  }
  raw.send(zmq::str_buffer("two"), zmq::send_flags::sndmore);
  raw.send(zmq::str_buffer("parts"));
  CHECK(answer_of(raw) == "refused: a message of 2 parts: there is one");
  CHECK(stage.server.refused() == 9);
  client->send(FrameKind::report, "still here");
  CHECK(stage.peer.wait_for("3 still here"));
  CHECK(stage.peer.count() == 1);
}

TEST_CASE("a peer that loses a frame, or sends what is none, is given up") {
  Stage stage;
  zmq::socket_t raw = stage.dealer();
  send(raw, make_frame(FrameKind::attach, 0, text_body(stage.token)));
  CHECK(answer_of(raw) == "16");
  send(raw, make_frame(FrameKind::report, 1, "one"));
  if (GENERATE(true, false)) {
    send(raw, make_frame(FrameKind::report, 3, "three"));
    CHECK(stage.peer.wait_for("closed: a frame of its connection is missing"));
  } else {
    send(raw, "garbage");
    CHECK(stage.peer.wait_for("closed: it is no frame of motley's"));
  }
  CHECK(answer_of(raw).starts_with("refused: "));
  send(raw, make_frame(FrameKind::report, 2, "two"));
  CHECK(answer_of(raw) == "refused: it has not attached");
  CHECK(stage.peer.count() == 2);
}

TEST_CASE("an engine that speaks frames alone is admitted by its hello, or refused") {
  Stage stage;
  zmq::socket_t early = stage.dealer();
  const std::string hello = make_frame(FrameKind::hello, 0, hello_body({.name = "engine", .group = "one"}));
  send(early, hello);
  CHECK(answer_of(early) == "refused: it has not attached");
  Heard engine;
  stage.server.set_hello([&](const std::string& route, const std::string& body) {
    if (parse_hello(body).group == "one")
      stage.server.admit({.frame = [&](FrameKind kind, const std::string& text) { engine.frame(kind, text); },
                          .closed = [&](const std::string& cause) { engine.closed(cause); }},
                         route, welcome_body({.replica = 3}));
    else
      stage.server.refuse_hello(route, "no such group");
  });
  zmq::socket_t socket = stage.dealer(), other = stage.dealer();
  send(socket, hello);
  CHECK(answer_of(socket) == "22");
  send(socket, make_frame(FrameKind::report, 1, "one"));
  CHECK(engine.wait_for("3 one"));
  send(other, make_frame(FrameKind::hello, 0, hello_body({.name = "engine", .group = "two"})));
  CHECK(answer_of(other) == "refused: no such group");
}

TEST_CASE("a peer that falls silent is lost, before it has attached or after; one with nothing to say is not") {
  Stage stage(milliseconds(400));
  if (GENERATE(true, false)) {
    zmq::socket_t raw = stage.dealer();
    send(raw, make_frame(FrameKind::attach, 0, text_body(stage.token)));
    CHECK(answer_of(raw) == "16");
  }
  CHECK(stage.peer.wait_for("closed: it has said nothing for"));
}

TEST_CASE("a run that falls silent is lost to its samplers") {
  zmq::context_t context;
  zmq::socket_t mute(context, zmq::socket_type::router);
  mute.bind("tcp://127.0.0.1:*");
  Heard heard;
  const SessionClient client(
      context, {.endpoint = mute.get(zmq::sockopt::last_endpoint), .token = "a", .silence = milliseconds(300)},
      {.frame = [&](FrameKind kind, const std::string& body) { heard.frame(kind, body); },
       .closed = [&](const std::string& cause) { heard.closed(cause); }});
  CHECK(heard.wait_for("closed: the run has said nothing for"));
}

}  // namespace motley::actors
