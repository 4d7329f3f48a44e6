// The values of run.keep_trajectories.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace motley::actors {

/// How many updates' trajectory files are kept: "all", "none" (0) or "last N"; nothing for other texts.
inline std::optional<int64_t> kept_updates(std::string_view text) {
  if (text == "all") return std::numeric_limits<int64_t>::max();
  if (text == "none") return 0;
  constexpr std::string_view kLast = "last ";
  if (!text.starts_with(kLast)) return std::nullopt;
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + kLast.size(), end, count);
  if (error != std::errc() || stop != end || count < 1) return std::nullopt;
  return count;
}

}  // namespace motley::actors
