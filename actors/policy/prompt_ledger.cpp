#include "actors/policy/prompt_ledger.h"

#include <charconv>
#include <stdexcept>

namespace motley::actors {

PromptLedger::PromptLedger(uint64_t next, const std::vector<uint64_t>& unfinished)
    : next_(next), unfinished_(unfinished.begin(), unfinished.end()) {}

void PromptLedger::consume(uint64_t prompt) {
  for (; next_ < prompt; ++next_) unfinished_.insert(unfinished_.end(), next_);
  if (prompt == next_) {
    ++next_;
  } else if (unfinished_.erase(prompt) == 0) {
    throw std::logic_error("prompt " + std::to_string(prompt) + " was consumed twice");
  }
}

std::string numbers_to_text(const std::vector<uint64_t>& numbers) {
  std::string text;
  for (const uint64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::vector<uint64_t> numbers_from_text(const std::string& text) {
  std::vector<uint64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    uint64_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    const bool last = stop == end;
    if (error != std::errc() || (!last && (*stop != ',' || stop + 1 == end)))
      throw std::invalid_argument("not a list of numbers, separated by commas: " + text);
    numbers.push_back(number);
    at = last ? end : stop + 1;
  }
  return numbers;
}

}  // namespace motley::actors
