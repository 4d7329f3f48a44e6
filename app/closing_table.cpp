#include "app/closing_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/parallel.h"

namespace motley::app {

namespace {

/// Of the table, and of group and profile beside the numbers.
constexpr size_t kColumns = 80, kNameColumns = 27;

/// Group and profile in columns; where those do not fit, on a line of their own above the numbers.
std::string name_cell(const std::string& group, const std::string& profile, size_t group_width, bool own_line) {
  if (own_line) {
    const char* between = group.size() + 2 + profile.size() > kColumns ? "\n  " : "  ";
    return fmt::format("{}{}{}\n{:{}}", group, between, profile, "", kNameColumns);
  }
  return fmt::format("{:<{}} {:<{}}", group, group_width, profile, kNameColumns - 1 - group_width);
}

}  // namespace

std::string closing_table(const actors::RunSummary& summary) {
  size_t group_width = 5, profile_width = 7;
  for (const auto& group : summary.groups) {
    group_width = std::max(group_width, group.name.size());
    profile_width = std::max(profile_width, group.profile.size());
  }
  const bool own_line = group_width + 1 + profile_width > kNameColumns;
  if (!own_line) group_width = std::max(group_width, std::min<size_t>(11, kNameColumns - 1 - profile_width));
  std::string out =
      name_cell("group", "profile", group_width, own_line) +
      fmt::format(" {:>6} {:>8} {:>8} {:>9} {:>8} {:>8}\n", "share", "KL", "outside", "staleness", "tokens/s", "cost");
  bool emulated = false;
  double cost = 0.0;
  for (const auto& group : summary.groups) {
    const char* mark = group.emulated ? "*" : " ";
    cost += group.cost;
    emulated = emulated || group.emulated;
    out += name_cell(group.name, group.profile, group_width, own_line) +
           fmt::format(" {:>5.1f}% {:>8.5f} {:>7.3f}% {:>9.2f} {:>7.0f}{} {:>7.4f}{}\n", 100 * group.share, group.kl,
                       100 * group.outside, group.staleness, group.tokens_per_second, mark, group.cost, mark);
  }
  out +=
      "KL: mean of log q - log p over sampled tokens.\n"
      "outside: share of ratios p/q outside [0.2, 5].\n";
  if (cost > 0)
    out += fmt::format("cost: {:.4g}, {:.4g} per update{}\n", cost, summary.cost_per_update, emulated ? " *" : "");
  if (emulated)
    out +=
        "* emulated here on the CPU: the number formats are exact, the rate and the\n"
        "  cost are not the accelerator's.\n";
  return out;
}

std::string closing_json(const actors::RunSummary& summary, const std::filesystem::path& folder) {
  nlohmann::json groups = nlohmann::json::array();
  for (const auto& group : summary.groups)
    groups.push_back({{"name", group.name},
                      {"profile", group.profile},
                      {"hardware", group.hardware},
                      {"emulated", group.emulated},
                      {"share", group.share},
                      {"kl", group.kl},
                      {"outside", group.outside},
                      {"staleness", group.staleness},
                      {"tokens_per_second", group.tokens_per_second},
                      {"cost", group.cost},
                      {"cost_per_million_tokens", group.cost_per_million_tokens}});
  const kernels::ComputeUse use = kernels::compute_use();
  const nlohmann::json compute{{"threads", kernels::compute_threads()},
                               {"any_seconds", 1e-9 * static_cast<double>(use.any)},
                               {"busy_thread_seconds", 1e-9 * static_cast<double>(use.busy)},
                               {"starved_thread_seconds", 1e-9 * static_cast<double>(use.starved)}};
  return nlohmann::json{{"folder", folder.string()},
                        {"updates", summary.updates},
                        {"interrupted", summary.interrupted},
                        {"alarm", summary.alarm},
                        {"checkpoint", summary.checkpoint.string()},
                        {"seconds", summary.seconds},
                        {"cost_per_update", summary.cost_per_update},
                        {"groups", groups},
                        {"compute", compute}}
             .dump() +
         "\n";
}

}  // namespace motley::app
