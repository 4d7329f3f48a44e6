// Which of the allowed names a mistyped one probably meant: for messages about unknown names.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motley::algos {

/// Insertions, deletions and replacements that turn `a` into `b` (Levenshtein).
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// The name at the smallest distance, the first of several; empty if there are no names.
inline std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  const auto nearer = [&](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  };
  const auto nearest = std::min_element(names.begin(), names.end(), nearer);
  return nearest == names.end() ? std::string() : *nearest;
}

/// `unknown correction "scc"; allowed: grpo, mis, sc (nearest: "sc")`
inline std::string unknown_name_message(std::string_view what, std::string_view name,
                                        std::span<const std::string> names) {
  std::string message = "unknown " + std::string(what) + " \"" + std::string(name) + "\"; allowed: ";
  if (names.empty()) return message + "none";
  for (size_t i = 0; i < names.size(); ++i) message += (i ? ", " : "") + names[i];
  return message + " (nearest: \"" + nearest_name(name, names) + "\")";
}

}  // namespace motley::algos
