// Servers of external environments for tests: proper ones that answer what a test wants, and bare sockets that break
// off.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <msgpack.hpp>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "tests/temporary_folder.h"

namespace motley::actors {

/// What motley asked.
struct Asked {
  msgpack::object_handle handle;
  std::map<std::string, msgpack::object> fields;
  template <typename T>
  T get(const std::string& key) const {
    return fields.at(key).as<T>();
  }
};

/// A map of fields that are packed already, with the request's id.
class Fields {
 public:
  explicit Fields(uint64_t id) { add("id", id); }
  template <typename T>
  Fields& add(std::string_view key, const T& value) {
    msgpack::sbuffer packed;
    msgpack::packer(packed).pack(key).pack(value);
    packed_.append(packed.data(), packed.size());
    ++count_;
    return *this;
  }
  std::string bytes() const {
    msgpack::sbuffer head;
    msgpack::packer(head).pack_map(count_);
    return std::string(head.data(), head.size()) + packed_;
  }

 private:
  uint32_t count_ = 0;
  std::string packed_;
};

inline Fields hello_of(const Asked& ask) {
  const std::vector<std::string> symbols{"1", "2", "="};
  return Fields(ask.get<uint64_t>("id")).add("motley", 1).add("name", "test").add("symbols", symbols);
}

/// Answers with the bytes that `answer` gives; none: says nothing. On a thread of its own.
class ExternalServer {
 public:
  using Answer = std::function<std::vector<std::string>(const Asked&)>;
  ExternalServer(const std::string& address, Answer answer) : answer_(std::move(answer)) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind(address);
    thread_ = std::thread([this] { run(); });
  }
  ~ExternalServer() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    while (!stop_) {
      zmq::pollitem_t item{socket_.handle(), 0, ZMQ_POLLIN, 0};
      constexpr std::chrono::milliseconds kTick{5};
      if (zmq::poll(&item, 1, kTick) == 0) continue;
      zmq::message_t peer, delimiter, content;
      if (!socket_.recv(peer) || !socket_.recv(delimiter) || !socket_.recv(content)) return;
      Asked ask;
      ask.handle = msgpack::unpack(static_cast<const char*>(content.data()), content.size());
      ask.fields = ask.handle.get().as<std::map<std::string, msgpack::object>>();
      for (const std::string& bytes : answer_(ask)) {
        zmq::message_t to(peer.data(), peer.size());
        socket_.send(to, zmq::send_flags::sndmore);
        socket_.send(zmq::message_t(), zmq::send_flags::sndmore);
        socket_.send(zmq::buffer(bytes), zmq::send_flags::none);
      }
    }
  }

  Answer answer_;
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Accepts connections one after another on a port of 127.0.0.1, sends each the same bytes, hears the peer, sends what
/// follows and closes it; or, `silent`, keeps it open.
class BareServer {
 public:
  explicit BareServer(std::string bytes, std::string then = "", bool silent = false)
      : bytes_(std::move(bytes)), then_(std::move(then)), silent_(silent) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&place), size) == 0);
    REQUIRE(listen(socket_, 8) == 0);
    REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&place), &size) == 0);
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(place.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  ~BareServer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  const std::string& address() const { return address_; }
  int connections() const { return connections_; }

 private:
  void run() {
    std::vector<int> open;
    for (int peer = 0; (peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      ++connections_;
      say(peer, bytes_);
      if (silent_) {
        open.push_back(peer);
        continue;
      }
      hear(peer);
      say(peer, then_);
      hear(peer);
      close(peer);
    }
    for (const int peer : open) close(peer);
  }

  static void say(int peer, const std::string& bytes) {
    [[maybe_unused]] const ssize_t sent = ::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Until the peer has been silent for a while.
  static void hear(int peer) {
    const timeval limit{0, 30000};
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char block[4096];
    while (recv(peer, block, sizeof block, 0) > 0) {
    }
  }

  std::string bytes_, then_;
  bool silent_;
  int socket_ = -1;
  std::string address_;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

/// The greeting and READY command of a ROUTER (ZMTP 3.0, https://rfc.zeromq.org/spec/23/).
inline std::string zmtp_router() {
  std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16);
  greeting.resize(64, '\0');
  const std::string ready = std::string("\5READY\xbSocket-Type\0\0\0\6ROUTER", 6 + 12 + 4 + 6);
  return greeting + '\4' + static_cast<char>(ready.size()) + ready;
}

}  // namespace motley::actors
