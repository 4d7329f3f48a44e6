#include "app/closing_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/parallel.h"

namespace motley::app {

std::string closing_table(const actors::RunSummary& summary) {
  std::string out = fmt::format("{:<11} {:<15} {:>6} {:>8} {:>8} {:>9} {:>8} {:>8}\n", "group", "profile", "share",
                                "KL", "outside", "staleness", "tokens/s", "cost");
  bool emulated = false;
  for (const auto& group : summary.groups) {
    const char* mark = group.emulated ? "*" : " ";
    emulated = emulated || group.emulated;
    out += fmt::format("{:<11} {:<15} {:>5.1f}% {:>8.5f} {:>7.3f}% {:>9.2f} {:>7.0f}{} {:>7.4f}{}\n", group.name,
                       group.profile, 100 * group.share, group.kl, 100 * group.outside, group.staleness,
                       group.tokens_per_second, mark, group.cost, mark);
  }
  out +=
      "KL: mean of log q - log p over sampled tokens.\n"
      "outside: share of ratios p/q outside [0.2, 5].\n";
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
                      {"cost", group.cost}});
  const kernels::ComputeUse use = kernels::compute_use();
  const nlohmann::json compute{{"threads", kernels::compute_threads()},
                               {"any_seconds", 1e-9 * static_cast<double>(use.any)},
                               {"busy_thread_seconds", 1e-9 * static_cast<double>(use.busy)},
                               {"starved_thread_seconds", 1e-9 * static_cast<double>(use.starved)}};
  return nlohmann::json{{"folder", folder.string()},
                        {"updates", summary.updates},
                        {"interrupted", summary.interrupted},
                        {"checkpoint", summary.checkpoint.string()},
                        {"seconds", summary.seconds},
                        {"groups", groups},
                        {"compute", compute}}
             .dump() +
         "\n";
}

}  // namespace motley::app
