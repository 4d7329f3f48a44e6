#include "actors/external/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <zmq.hpp>

#include "envs/utf8.h"

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kPause{50};  // before a lost connection is made again
// A connection that brings more at once is closed by ZeroMQ; what is above kMostMessageBytes is refused with a reason.
constexpr int64_t kMostReplyBytes = 16 << 20;
constexpr const char* kNoZeroMq = "what listens there does not speak ZeroMQ";
constexpr size_t kMostShown = 300;  // bytes of a text in a message
constexpr int kMostUnread = 64;     // answers that ZeroMQ holds before it stops reading

std::string seconds(std::chrono::duration<double> time) { return fmt::format("{:.3g} s", time.count()); }

/// The frames of one message; none: nothing has come. A delimiter before the content is no frame of it.
std::vector<zmq::message_t> next_message(zmq::socket_t& socket) {
  std::vector<zmq::message_t> frames;
  bool more = true;
  for (bool first = true; more; first = false) {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
    more = frame.more();
    if (first && more && frame.empty()) continue;
    if (frames.size() < 2) frames.push_back(std::move(frame));  // two are one too many
  }
  return frames;
}

}  // namespace

/// A DEALER socket and the socket that tells what becomes of its connection.
class ExternalClient::Connection {
 public:
  explicit Connection(const std::string& address) : dealer(context_, zmq::socket_type::dealer) {
    static std::atomic<uint64_t> count{0};
    dealer.set(zmq::sockopt::linger, 0);
    dealer.set(zmq::sockopt::sndhwm, 0);
    dealer.set(zmq::sockopt::rcvhwm, kMostUnread);
    dealer.set(zmq::sockopt::maxmsgsize, kMostReplyBytes);
    const std::string place = fmt::format("inproc://external-{}", ++count);
    if (zmq_socket_monitor(dealer.handle(), place.c_str(), ZMQ_EVENT_ALL) != 0) throw zmq::error_t();
    monitor.connect(place);
    dealer.connect(address);
  }
  ~Connection() { zmq_socket_monitor(dealer.handle(), nullptr, 0); }

  /// A plain REP socket at the other end expects an empty frame first.
  void send(const std::string& bytes) {
    dealer.send(zmq::message_t(), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    dealer.send(zmq::buffer(bytes), zmq::send_flags::dontwait);
  }

 private:
  zmq::context_t context_{1};

 public:
  zmq::socket_t dealer;
  zmq::socket_t monitor{context_, zmq::socket_type::pair};
  bool reached = false, ready = false;  // something listens; it speaks ZeroMQ
};

ExternalClient::ExternalClient(std::string address, ExternalLimits limits)
    : address_(std::move(address)), limits_(limits), away_since_(Clock::now()) {
  try {
    connect();
  } catch (const zmq::error_t& error) {
    throw ExternalError(
        fmt::format("\"{}\" is no address that ZeroMQ takes: {}", envs::printable(address_, kMostShown), error.what()));
  }
  thread_ = std::thread([this] { run(); });
}

ExternalClient::~ExternalClient() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.signal();
  thread_.join();
}

std::shared_ptr<ExternalClient::Call> ExternalClient::hand_over(const ExternalRequest& request, bool wants_answer) {
  auto call = std::make_shared<Call>();
  call->wants_answer = wants_answer;
  call->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limits_.answer);
  {
    const std::lock_guard lock(mutex_);
    if (closing_) throw ExternalError(address_ + ": the connection is closed");
    call->id = ++last_id_;
    call->bytes = request.packed(call->id);
    new_calls_.push_back(call);
  }
  wake_.signal();
  return call;
}

ExternalAnswer ExternalClient::ask(const ExternalRequest& request) {
  const std::string origin = fmt::format("{}, \"{}\": ", address_, request.what());
  try {
    ExternalAnswer answer = hand_over(request, true)->answer.get_future().get();
    answer.set_origin(origin);
    constexpr size_t kMostReason = 4096;
    if (const auto error = answer.optional_text("error", kMostReason))
      throw ExternalError("the server says: " + envs::printable(*error, kMostShown));
    return answer;
  } catch (const ExternalError& error) {
    const std::string text = error.what();
    throw ExternalError(text.starts_with(origin) ? text : origin + text);
  }
}

void ExternalClient::tell(const ExternalRequest& request) { hand_over(request, false); }

void ExternalClient::run() {
  try {
    run_until_closed();
    fail_all("the connection is closed");
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const auto& call : std::exchange(new_calls_, {})) calls_.emplace(call->id, call);
    fail_all(fmt::format("the connection failed: {}", error.what()));
  }
  connection_.reset();
}

void ExternalClient::run_until_closed() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (closing_) {
        for (const auto& call : std::exchange(new_calls_, {})) calls_.emplace(call->id, call);
        return;
      }
    }
    if (!connection_ && Clock::now() >= connect_at_) connect();
    std::array<zmq::pollitem_t, 3> items{};
    items[0] = {nullptr, wake_.descriptor(), ZMQ_POLLIN, 0};
    if (connection_) {
      items[1] = {connection_->monitor.handle(), 0, ZMQ_POLLIN, 0};
      items[2] = {connection_->dealer.handle(), 0, ZMQ_POLLIN, 0};
    }
    zmq::poll(items.data(), connection_ ? 3 : 1, std::chrono::milliseconds(milliseconds_to_wait()));
    wake_.clear();
    take_new_calls();
    receive();
    follow_connection();
    send_waiting();
    expire();
  }
}

void ExternalClient::take_new_calls() {
  const std::lock_guard lock(mutex_);
  for (const auto& call : std::exchange(new_calls_, {})) calls_.emplace(call->id, call);
  last_taken_ = last_id_;
}

void ExternalClient::connect() { connection_ = std::make_unique<Connection>(address_); }

/// The connection is made anew, so that nothing of the old one is left in ZeroMQ's queues.
void ExternalClient::lose(const std::string& cause) {
  if (connection_ && connection_->ready) away_since_ = Clock::now();
  connection_.reset();
  connect_at_ = Clock::now() + kPause;
  trouble_ = cause;
  for (auto at = calls_.begin(); at != calls_.end();) {
    const std::shared_ptr<Call> call = at->second;
    const bool give_up = call->sent && ++call->attempts >= kAttempts;
    call->sent = false;
    if (give_up) fail(call, fmt::format("{}; this was the last of {} attempts", cause, kAttempts));
    at = give_up ? calls_.erase(at) : std::next(at);
  }
}

void ExternalClient::follow_connection() {
  while (connection_) {
    zmq::message_t event, address;
    if (!connection_->monitor.recv(event, zmq::recv_flags::dontwait)) return;
    if (event.more() && !connection_->monitor.recv(address, zmq::recv_flags::dontwait)) return;
    uint16_t number = 0;
    if (event.size() >= sizeof number) std::memcpy(&number, event.data(), sizeof number);
    if (number == ZMQ_EVENT_CONNECTED) connection_->reached = true;
    if (number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) connection_->ready = true;
    if (number == ZMQ_EVENT_DISCONNECTED) lose(connection_->ready ? "the connection was lost" : kNoZeroMq);
  }
}

void ExternalClient::send_waiting() {
  if (!connection_ || !connection_->ready) return;
  for (auto at = calls_.begin(); at != calls_.end();) {
    Call& call = *at->second;
    if (!call.sent) connection_->send(call.bytes);
    call.sent = true;
    at = call.wants_answer ? std::next(at) : calls_.erase(at);
  }
}

void ExternalClient::receive() {
  while (connection_) {
    const std::vector<zmq::message_t> frames = next_message(connection_->dealer);
    if (frames.empty()) return;
    try {
      if (frames.size() > 1) throw ExternalError("a message of several frames");
      if (frames[0].size() > kMostMessageBytes)
        throw ExternalError(fmt::format("a message of {} bytes; at most {}", frames[0].size(), kMostMessageBytes));
      ExternalAnswer answer(frames[0].to_string_view());
      if (answer.id() == 0 || answer.id() > last_taken_)
        throw ExternalError(fmt::format("an answer to request {}, which nobody made", answer.id()));
      const auto found = calls_.find(answer.id());
      if (found == calls_.end()) continue;  // answered before, or too late
      found->second->answer.set_value(std::move(answer));
      calls_.erase(found);
    } catch (const ExternalError& error) {
      lose(fmt::format("the server sent {}", error.what()));
    }
  }
}

void ExternalClient::expire() {
  const Clock::time_point now = Clock::now();
  const bool away = !connection_ || !connection_->ready;
  if (away && now - away_since_ >= limits_.away) {
    const bool silent = connection_ && connection_->reached;
    std::string cause = silent ? kNoZeroMq : trouble_;
    if (cause.empty()) cause = "nothing answers there; start it first, or set away_seconds higher";
    fail_all(fmt::format("no server for {}: {}", seconds(limits_.away), cause));
    return;
  }
  for (auto at = calls_.begin(); at != calls_.end();) {
    const bool late = at->second->deadline <= now;
    if (late) {
      const std::string before = trouble_.empty() ? "" : "; what went wrong last: " + trouble_;
      fail(at->second, fmt::format("no answer within {}{}", seconds(limits_.answer), before));
    }
    at = late ? calls_.erase(at) : std::next(at);
  }
}

int ExternalClient::milliseconds_to_wait() const {
  constexpr std::chrono::milliseconds kLongest{1000};
  Clock::time_point until = Clock::now() + kLongest;
  if (!connection_) until = std::min(until, connect_at_);
  if ((!connection_ || !connection_->ready) && !calls_.empty())
    until = std::min(until, away_since_ + std::chrono::duration_cast<Clock::duration>(limits_.away));
  for (const auto& [id, call] : calls_) until = std::min(until, call->deadline);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

void ExternalClient::fail(const std::shared_ptr<Call>& call, const std::string& reason) const {
  call->answer.set_exception(std::make_exception_ptr(ExternalError(reason)));
}

void ExternalClient::fail_all(const std::string& reason) {
  for (const auto& [id, call] : calls_) fail(call, reason);
  calls_.clear();
}

}  // namespace motley::actors
