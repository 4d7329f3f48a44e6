// Which training prompts have been consumed, in whatever order: what a checkpoint must say so that a resumed run issues
// every other prompt, once.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace motley::actors {

inline constexpr const char* kUnfinished = "unfinished";  // RunState::extra: prompts to issue again

class PromptLedger {
 public:
  PromptLedger() = default;
  /// Everything below `next` is consumed but the `unfinished` ones.
  PromptLedger(uint64_t next, const std::vector<uint64_t>& unfinished);
  void consume(uint64_t prompt);
  /// One more than the largest prompt consumed.
  uint64_t next() const { return next_; }
  /// Prompts below next() that were not consumed, ascending.
  std::vector<uint64_t> unfinished() const { return {unfinished_.begin(), unfinished_.end()}; }

 private:
  uint64_t next_ = 0;
  std::set<uint64_t> unfinished_;
};

/// "3,7,12"; empty text for none. Throws std::invalid_argument for anything else.
std::string numbers_to_text(const std::vector<uint64_t>& numbers);
std::vector<uint64_t> numbers_from_text(const std::string& text);

}  // namespace motley::actors
