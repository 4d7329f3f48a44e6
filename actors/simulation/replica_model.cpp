#include "actors/simulation/replica_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace motley::simulation {

constexpr double kTick = 1e-6;  // of a step: what rounding may move a step's end by

void ReplicaModel::move(double steps) {
  clock_ += steps;
  versions_ += steps * static_cast<double>(version_);
  tokens_ += steps * static_cast<double>(batch());
}

void ReplicaModel::advance(double now) {
  if (now <= time_) return;
  if (running_.empty()) {
    time_ = now;
    return;
  }
  busy_ += now - time_;
  time_ = std::max(time_, std::min(now, paused_until_));
  if (joining_ > 0) {
    const double steps = std::max(0.0, join_at_ - clock_), seconds = steps * speed_.step(batch());
    if (time_ + seconds <= now) {
      move(steps);
      joining_ = 0;
      time_ += seconds;
    }
  }
  if (now > time_) move((now - time_) / speed_.step(batch()));
  time_ = now;
}

void ReplicaModel::submit(double now, uint32_t session, int64_t tokens, double prefill) {
  advance(now);
  const Waiting reply{session, tokens, prefill};
  if (static_cast<int64_t>(running_.size()) < speed_.slots) {
    // Whoever comes at the very end of a step was sent for what that step drew, and is a little later than the next
    // one.
    begin(reply, running_.empty() || clock_ < kTick ? 0.0 : std::floor(clock_ + kTick) + 1.0);
  } else {
    waiting_.push_back(reply);
  }
}

void ReplicaModel::begin(const Waiting& reply, double earliest) {
  if (running_.empty()) clock_ = versions_ = 0.0;  // a busy spell begins, with the numbers at their most exact
  // It joins when the step that is under way ends.
  const double join = std::max(earliest, std::ceil(clock_ - kTick));
  if (join > clock_ + kTick) {
    ++joining_;
    join_at_ = join;
  }
  const double versions = versions_ + (join - clock_) * static_cast<double>(version_);
  running_.push_back({join + static_cast<double>(reply.tokens), join, versions, reply.session, version_});
  std::push_heap(running_.begin(), running_.end(), std::greater<>());
  paused_until_ = std::max(paused_until_, time_) + reply.prefill * speed_.prefill_seconds;
}

std::optional<double> ReplicaModel::next() const {
  if (running_.empty()) return std::nullopt;
  const double end = std::max(clock_, running_.front().end);
  const double join = joining_ > 0 ? std::min(end, join_at_) : end;  // until then the batch stays
  return std::max(time_, paused_until_) + (join - clock_) * speed_.step(batch()) +
         (end - join) * speed_.step(batch() + joining_);
}

ReplicaModel::Reply ReplicaModel::drawn(const Running& running, double clock, double versions) const {
  const double tokens = std::floor(std::max(0.0, clock - running.begin) + kTick);
  return {running.session, static_cast<int64_t>(tokens), running.first_version,
          std::max(0.0, versions - running.versions_before)};
}

void ReplicaModel::take_ended(double now, std::vector<Reply>& ended) {
  advance(now);
  while (!running_.empty() && running_.front().end <= clock_ + kTick) {
    std::pop_heap(running_.begin(), running_.end(), std::greater<>());
    const Running& first = running_.back();
    const double beyond = first.end - clock_;
    ended.push_back(drawn(first, first.end, versions_ + beyond * static_cast<double>(version_)));
    running_.pop_back();
  }
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < speed_.slots) {
    begin(waiting_.front(), 0.0);
    waiting_.pop_front();
  }
}

std::vector<ReplicaModel::Reply> ReplicaModel::interrupt(double now) {
  advance(now);
  std::vector<Reply> all;
  std::sort_heap(running_.begin(), running_.end(), std::greater<>());
  for (; !running_.empty(); running_.pop_back()) all.push_back(drawn(running_.back(), clock_, versions_));
  for (const Waiting& reply : waiting_) all.push_back({reply.session, 0, version_, 0.0});
  waiting_.clear();
  joining_ = 0;
  return all;
}

void ReplicaModel::swap(double now, uint64_t version, double pause) {
  advance(now);
  version_ = version;
  if (joining_ > 0)
    for (Running& running : running_)
      if (running.begin > clock_ + kTick) running.first_version = version;
  if (!running_.empty()) paused_until_ = std::max(paused_until_, time_) + pause;
}

}  // namespace motley::simulation
