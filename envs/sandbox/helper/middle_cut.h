// Output of any length in bounded memory: its beginning and its end are kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley::envs {

class MiddleCut {
 public:
  /// Keeps `limit` bytes, half of them from the end.
  explicit MiddleCut(uint64_t limit) : head_limit_(limit - limit / 2), tail_limit_(limit / 2) {}

  void add(std::string_view bytes) {
    total_ += bytes.size();
    const size_t room = std::min<size_t>(head_limit_ - head_.size(), bytes.size());
    head_.append(bytes.substr(0, room));
    bytes.remove_prefix(room);
    if (bytes.size() >= tail_limit_) {
      tail_.clear();
      bytes.remove_prefix(bytes.size() - tail_limit_);
    }
    tail_.append(bytes);
    // Dropping from the front only now and then keeps this linear.
    if (tail_.size() > 2 * tail_limit_ + 4096) tail_.erase(0, tail_.size() - tail_limit_);
  }
  const std::string& head() const { return head_; }
  std::string tail() const { return tail_.size() <= tail_limit_ ? tail_ : tail_.substr(tail_.size() - tail_limit_); }
  uint64_t cut() const { return total_ - head_.size() - std::min<uint64_t>(tail_.size(), tail_limit_); }

 private:
  uint64_t head_limit_, tail_limit_, total_ = 0;
  std::string head_, tail_;
};

}  // namespace motley::envs
