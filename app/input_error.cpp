#include "app/input_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace motley::app {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same =
          std::tolower(static_cast<unsigned char>(a[i - 1])) == std::tolower(static_cast<unsigned char>(b[j - 1]));
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

/// What the user gave, short enough for a message; never cut inside a UTF-8 character.
std::string clipped(const std::string& text) {
  constexpr size_t kLongest = 400;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string compose(const Position& where, const std::string& found, const std::string& allowed,
                    const std::string& nearest) {
  std::string text = clipped(where.text()) + ": error: " + clipped(found);
  if (!allowed.empty()) text += "; " + allowed;
  if (!nearest.empty()) text += "; did you mean '" + nearest + "'?";
  // One line, and no control sequence of a hostile file reaches the terminal.
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

std::string Position::text() const { return line > 0 ? fmt::format("{}:{}:{}", source, line, column) : source; }

InputError::InputError(const Position& where, const std::string& found, const std::string& allowed,
                       const std::string& nearest)
    : std::runtime_error(compose(where, found, allowed, nearest)) {}

std::string nearest_name(std::string_view word, std::span<const std::string> names) {
  constexpr size_t kLongest = 100;  // the distance is quadratic, and no name is that long
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word, name);
    // A name of three letters two edits away shares nothing worth suggesting.
    if (distance < best_distance && distance < std::max(name.size(), word.size()) - 1) {
      best = name;
      best_distance = distance;
    }
  }
  if (!best.empty()) return best;
  for (const std::string& name : names) {
    if (word.size() >= 3 && (name.starts_with(word) || name.find("-" + std::string(word)) != std::string::npos)) {
      return name;
    }
  }
  return "";
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

}  // namespace motley::app
