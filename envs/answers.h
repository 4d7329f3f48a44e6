// How the reply to a problem from a file is compared with its answer. Replies come from a model: any bytes, any length.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace motley::envs {

/// Longer replies are wrong without a look: no answer is this long, and patterns take time in proportion.
inline constexpr size_t kMaxReplyBytes = 4096;

/// A decimal number in text: blanks around it, a sign, thousands commas (1,234), a fraction and an exponent are
/// allowed.
std::optional<double> parse_number(std::string_view text);
/// Equal but for a relative 1e-9: the last digits of a number that was printed and read again.
bool numbers_agree(double a, double b);

/// A regular expression (ECMAScript, over Unicode characters) that a whole text must match. Matching follows all
/// alternatives at once, so that no pattern takes more than pattern times text steps; hence no back-references
/// and no look-ahead.
class AnswerPattern {
 public:
  /// Throws std::invalid_argument with the reason.
  explicit AnswerPattern(std::string_view pattern);
  /// False for malformed UTF-8 and beyond kMaxReplyBytes.
  bool matches(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace motley::envs
