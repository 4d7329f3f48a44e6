#include "actors/remote/line_stay.h"

#include "actors/remote/join.h"

namespace motley::actors {

LineStay::LineStay(zmq::context_t& context, SessionClientOptions session, LineRole role)
    : role_(std::move(role)),
      line_([this](FrameKind kind, std::string body) { session_->send(kind, std::move(body)); },
            [this](const std::string& cause) { breaks(cause); }),
      session_(std::make_unique<SessionClient>(
          context, std::move(session),
          SessionClient::Events{.frame = [this](FrameKind kind, std::string body) { take(kind, std::move(body)); },
                                .closed =
                                    [this](const std::string& cause) {
                                      breaks(cause);
                                      line_.closed(cause);
                                    }})),
      thread_([this] { work(); }) {}

LineStay::~LineStay() {
  line_.closed("it ends");
  thread_.join();
  session_.reset();  // sends what is left
}

void LineStay::take(FrameKind kind, std::string body) {
  if (kind != FrameKind::attached) line_.frame(kind, std::move(body));
}

void LineStay::work() {
  try {
    auto [kind, body] = line_.next();
    if (kind != FrameKind::setting) throw WireError("the run begins with something else than its setting");
    const Setting setting = parse_setting(body);
    LineRole::Serve serves;
    try {
      serves = role_.prepare(setting);
    } catch (const std::exception&) {
      return ends_for_good();
    }
    serves(line_, [this] {
      const std::lock_guard lock(mutex_);
      served_ = true;
    });
    line_.send(FrameKind::leaving);
    const std::lock_guard lock(mutex_);
    left_ = true;
  } catch (const JoinRefused&) {
    ends_for_good();
  } catch (const LineClosed& error) {
    breaks(error.what());
  } catch (const WireError& error) {
    breaks(error.what());
  } catch (const std::exception& error) {
    if (role_.fails_for_good) return ends_for_good();
    breaks(error.what());
  }
}

void LineStay::leave() {
  if (role_.asks_to_leave) return session_->send(FrameKind::leave);
  {
    const std::lock_guard lock(mutex_);
    if (broken_ || unfit_) return;
    left_ = true;
  }
  session_->send(FrameKind::leaving);
  line_.closed("it leaves");
}

void LineStay::breaks(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (!broken_ && !left_) broken_ = cause;  // who has left waits until the run has read it
}

void LineStay::ends_for_good() {
  const std::lock_guard lock(mutex_);
  unfit_ = std::current_exception();
}

std::optional<std::string> LineStay::broken() const {
  const std::lock_guard lock(mutex_);
  if (unfit_) std::rethrow_exception(unfit_);
  return broken_;
}
bool LineStay::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}
bool LineStay::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

}  // namespace motley::actors
