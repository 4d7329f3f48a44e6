// GCC 12 takes std::wregex's automaton for uninitialized in sanitizer builds (GCC bug 105616); the warning's place is
// in the library's headers, so it is off from before they are read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "envs/answers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>
#include <stdexcept>

#include "envs/utf8.h"

namespace motley::envs {

namespace {

// The engine's stack and time grow with the pattern written out: x{n} counts n times, and so does what it stands in.
constexpr size_t kMaxPatternBytes = 1024;
constexpr double kMaxRepeats = 4096;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::wstring wide(std::string_view text) {
  const std::u32string points = code_points(text);
  static_assert(sizeof(wchar_t) == sizeof(char32_t));
  return {points.begin(), points.end()};
}

/// The pattern with escaped characters and character classes blanked: what is left of operators are operators.
std::string operators(std::string_view pattern) {
  std::string text(pattern);
  bool in_class = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_class || c == '[' || c == '\\') text[i] = ' ';
    if (c == '\\' && i + 1 < text.size()) {
      text[++i] = ' ';
    } else if (c == (in_class ? ']' : '[')) {
      in_class = !in_class;
    }
  }
  return text;
}

double repeats(std::string_view pattern) {
  double product = 1;
  for (size_t at = pattern.find('{'); at != std::string_view::npos; at = pattern.find('{', at + 1)) {
    double largest = 1, value = 0;
    for (size_t i = at + 1; i < pattern.size() && (is_digit(pattern[i]) || pattern[i] == ','); ++i) {
      value = is_digit(pattern[i]) ? 10 * value + (pattern[i] - '0') : 0;
      largest = std::max(largest, value);
    }
    product *= largest;
  }
  return product;
}

/// Digits with all commas at thousands, or none: gives them without commas; empty if it is something else.
std::string without_commas(std::string_view whole) {
  std::string digits;
  const bool grouped = whole.find(',') != std::string_view::npos;
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool comma_place = grouped && i > 0 && (whole.size() - i) % 4 == 0;
    if (comma_place ? whole[i] != ',' : !is_digit(whole[i])) return {};
    if (!comma_place) digits += whole[i];
  }
  return digits;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos || text.size() > kMaxReplyBytes) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string_view whole = text.substr(0, text.find_first_not_of("0123456789,"));
  const std::string_view rest = text.substr(whole.size());
  const std::string digits = without_commas(whole);
  if (digits.empty() && !whole.empty()) return std::nullopt;
  const std::string number = (whole.empty() ? "0" : digits) + std::string(rest);
  // ".5" and "5." are numbers, "." and "e5" are not.
  if (whole.empty() && (rest.size() < 2 || rest[0] != '.' || !is_digit(rest[1]))) return std::nullopt;
  double value = 0;
  const char* end = number.data() + number.size();
  const auto result = std::from_chars(number.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return negative ? -value : value;
}

bool numbers_agree(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

struct AnswerPattern::Compiled {
  std::wregex expression;
};

AnswerPattern::AnswerPattern(std::string_view pattern) {
  if (!is_utf8(pattern)) throw std::invalid_argument("the pattern is not valid UTF-8");
  if (pattern.size() > kMaxPatternBytes) {
    throw std::invalid_argument("the pattern is longer than " + std::to_string(kMaxPatternBytes) + " bytes");
  }
  const std::string structure = operators(pattern);
  if (structure.find("(?=") != std::string::npos || structure.find("(?!") != std::string::npos) {
    throw std::invalid_argument("look-ahead is not supported: its cost has no bound");
  }
  if (repeats(structure) > kMaxRepeats) throw std::invalid_argument("the repeat counts of the pattern are too large");
  // GCC's name for the engine that does not go back; without it (a+)+b on a row of a's takes for ever.
  constexpr auto kFlags =
      std::regex_constants::ECMAScript | std::regex_constants::nosubs | std::regex_constants::__polynomial;
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::wregex(wide(pattern), kFlags)});
  } catch (const std::regex_error& error) {
    throw std::invalid_argument(std::string("not a regular expression that can be used: ") + error.what());
  }
}

bool AnswerPattern::matches(std::string_view text) const {
  if (text.size() > kMaxReplyBytes || !is_utf8(text)) return false;
  return std::regex_match(wide(text), compiled_->expression);
}

}  // namespace motley::envs
