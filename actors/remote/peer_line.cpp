#include "actors/remote/peer_line.h"

#include <algorithm>
#include <cstring>

namespace motley::actors {
namespace {

constexpr size_t kMostWaitingFrames = 4 * kPartsOnTheWay;  // frames

}  // namespace

PeerLine::PeerLine(std::function<void(FrameKind, std::string)> send, std::function<void(const std::string&)> hang_up)
    : send_(std::move(send)), hang_up_(std::move(hang_up)) {}

void PeerLine::frame(FrameKind kind, std::string body) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  if (kind == FrameKind::taken) {
    if (credit_ == kPartsOnTheWay) throw WireError("it has taken a part that nobody sent");
    ++credit_;
  } else {
    if (waiting_.size() == kMostWaitingFrames) throw WireError("it sends more than was asked for");
    waiting_.emplace_back(kind, std::move(body));
  }
  changed_.notify_all();
}

void PeerLine::closed(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true)) return;
  cause_ = cause;
  changed_.notify_all();
}

bool PeerLine::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void PeerLine::close_with_cause(const std::string& cause) {
  closed(cause);
  hang_up_(cause);
}

void PeerLine::send(FrameKind kind, std::string body) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw LineClosed(cause_);
  }
  send_(kind, std::move(body));
}

std::pair<FrameKind, std::string> PeerLine::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
  if (closed_) throw LineClosed(cause_);
  std::pair<FrameKind, std::string> frame = std::move(waiting_.front());
  waiting_.pop_front();
  return frame;
}

void PeerLine::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t fits = std::min(bytes.size(), kPartBytes - out_.size());
    out_.append(bytes.substr(0, fits));
    bytes.remove_prefix(fits);
    if (out_.size() == kPartBytes) send_part();
  }
}

void PeerLine::flush() {
  if (!out_.empty()) send_part();
}

void PeerLine::send_part() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || credit_ > 0; });
    if (closed_) throw LineClosed(cause_);
    --credit_;
  }
  send_(FrameKind::part, std::exchange(out_, {}));
}

void PeerLine::read(char* to, size_t bytes) {
  while (bytes > 0) {
    if (read_ == in_.size()) {
      auto [kind, body] = next();
      if (kind != FrameKind::part) throw WireError("less bytes than its head says");
      in_ = std::move(body);
      if (in_.empty() || in_.size() > kPartBytes)
        throw WireError("a part of " + std::to_string(in_.size()) + " bytes: it has 1 to " +
                        std::to_string(kPartBytes));
      read_ = 0;
      send(FrameKind::taken);
    }
    const size_t here = std::min(bytes, in_.size() - read_);
    std::memcpy(to, in_.data() + read_, here);
    read_ += here;
    to += here;
    bytes -= here;
  }
}

void PeerLine::end_parts() const {
  if (read_ != in_.size()) throw WireError("more bytes than its head says");
}

}  // namespace motley::actors
