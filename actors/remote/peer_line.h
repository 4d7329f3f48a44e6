// One end of the conversation between a run and a learner or an evaluator elsewhere: frames in order, and bytes that
// follow some of them in parts, never more of these on the way than the other end has asked for. Free of CAF and
// ZeroMQ.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "actors/remote/wire.h"

namespace motley::actors {

/// The other end is gone; what() says why.
class LineClosed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr size_t kPartBytes = size_t{4} << 20;
inline constexpr size_t kPartsOnTheWay = 8;  // so that a ping behind them is not late on a link of 100 Mbit/s

class PeerLine {
 public:
  /// `send`: called on any thread, must not block. `hang_up`: called once by close_with_cause, on its thread.
  PeerLine(std::function<void(FrameKind, std::string)> send, std::function<void(const std::string&)> hang_up);

  // On the socket's thread; neither blocks.
  /// Throws WireError for more than was asked for.
  void frame(FrameKind kind, std::string body);
  /// Only the first cause counts.
  void closed(const std::string& cause);

  // On the one thread that speaks; each throws LineClosed.
  void send(FrameKind kind, std::string body = {});
  /// What comes next, whenever that is.
  std::pair<FrameKind, std::string> next();
  /// In parts; `flush` sends what is left over.
  void write(std::string_view bytes);
  void flush();
  /// From parts. Throws WireError when something else comes.
  void read(char* to, size_t bytes);
  /// Everything that came in parts has been read: throws WireError.
  void end_parts() const;
  /// What the other end sent is not right: it is let go of.
  void close_with_cause(const std::string& cause);
  bool is_closed() const;

 private:
  void send_part();

  std::function<void(FrameKind, std::string)> send_;
  std::function<void(const std::string&)> hang_up_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<FrameKind, std::string>> waiting_;
  size_t credit_ = kPartsOnTheWay;
  bool closed_ = false;
  std::string cause_;
  std::string out_, in_;  // parts in the making, and being read
  size_t read_ = 0;       // of in_
};

}  // namespace motley::actors
