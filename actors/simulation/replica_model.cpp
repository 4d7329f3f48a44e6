#include "actors/simulation/replica_model.h"

#include <algorithm>
#include <cmath>

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
    const double steps = std::ceil(clock_ - kTick) - clock_, seconds = steps * speed_.step(batch());
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
    begin(reply);
  } else {
    waiting_.push_back(reply);
  }
}

void ReplicaModel::begin(const Waiting& reply) {
  if (running_.empty()) clock_ = versions_ = 0.0;  // a busy spell begins, with the numbers at their most exact
  // It joins when the step that is under way ends.
  const double join = std::ceil(clock_ - kTick);
  if (join > clock_ + kTick) ++joining_;
  const double versions = versions_ + (join - clock_) * static_cast<double>(version_);
  running_.push({join + static_cast<double>(reply.tokens), join, versions, reply.session, version_});
  paused_until_ = std::max(paused_until_, time_) + reply.prefill * speed_.prefill_seconds;
}

std::optional<double> ReplicaModel::next() const {
  if (running_.empty()) return std::nullopt;
  const double end = std::max(clock_, running_.top().end);
  const double join = joining_ > 0 ? std::min(end, std::ceil(clock_ - kTick)) : end;  // until then the batch stays
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
  while (!running_.empty() && running_.top().end <= clock_ + kTick) {
    const Running& top = running_.top();
    const double beyond = top.end - clock_;
    ended.push_back(drawn(top, top.end, versions_ + beyond * static_cast<double>(version_)));
    running_.pop();
  }
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < speed_.slots) {
    begin(waiting_.front());
    waiting_.pop_front();
  }
}

std::vector<ReplicaModel::Reply> ReplicaModel::interrupt(double now) {
  advance(now);
  std::vector<Reply> all;
  for (; !running_.empty(); running_.pop()) all.push_back(drawn(running_.top(), clock_, versions_));
  for (const Waiting& reply : waiting_) all.push_back({reply.session, 0, version_, 0.0});
  waiting_.clear();
  joining_ = 0;
  return all;
}

void ReplicaModel::swap(double now, uint64_t version, double pause) {
  advance(now);
  version_ = version;
  if (!running_.empty()) paused_until_ = std::max(paused_until_, time_) + pause;
}

}  // namespace motley::simulation
