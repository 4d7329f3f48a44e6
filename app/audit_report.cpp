#include "app/audit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace motley::app {
namespace {

using algos::audit::Figure;
using algos::audit::FigureName;
using algos::audit::kFigures;

/// Three digits; what rounding leaves of an exact 0 is a 0.
std::string digits(double value) {
  if (std::abs(value) < 1e-12) return "0";
  const double size = std::abs(value);
  return size >= 1e-3 && size < 1e4 ? fmt::format("{:.3g}", value) : fmt::format("{:.1e}", value);
}

/// Sampled figures carry their interval.
std::string cell(const Figure& figure, bool exact) {
  return exact ? digits(figure.value) : fmt::format("{} ±{}", digits(figure.value), digits(figure.half_width));
}

std::string padded(const std::string& text, size_t width) {  // ± takes two bytes and one column
  const auto columns = static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return std::string(columns < width ? width - columns : 0, ' ') + text;
}

std::vector<AuditRow> by_error(const AuditLevel& level) {
  std::vector<AuditRow> rows = level.rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const AuditRow& a, const AuditRow& b) { return a.mean.error.value < b.mean.error.value; });
  return rows;
}

const char* heading(const std::string& name) {
  if (name == "bias") return "bias²";
  if (name == "bias_whole") return "bias² whole";
  if (name == "error") return "MSE";
  if (name == "drift_up") return "drift A=+1";
  if (name == "drift_down") return "drift A=-1";
  return nullptr;
}

std::string distance_text(const AuditLevel& level) {
  const algos::audit::Distance& d = level.distance;
  std::string text = fmt::format("KL(q|p) {} per token, KL(p|q) {}, outside [0.2, 5] {} %, largest ratio {}",
                                 digits(d.kl), digits(d.kl_reverse), digits(100.0 * d.outside), digits(d.max_ratio));
  text += fmt::format(", sequence ESS {}", digits(d.effective_samples));
  if (level.truncated) text += fmt::format(", trainer's mass on the candidates {}", digits(d.candidate_mass));
  if (level.left_out) text += fmt::format("; {} problems without a gradient are left out", level.left_out);
  return text;
}

std::string level_name(const AuditLevel& level) { return level.mismatch.empty() ? "the problem" : level.mismatch; }

}  // namespace

std::string audit_text(const AuditReport& report) {
  std::string text = fmt::format(
      "{}; batch of {} sequences; all but cosine and masked relative to the exact gradient's squared norm\n",
      report.policy, report.batch);
  bool sampled = false;
  for (const AuditLevel& level : report.levels) {
    size_t name_width = 10, width = 11;
    for (const AuditRow& row : level.rows) {
      name_width = std::max(name_width, row.correction.size());
      if (!row.mean.exact) width = 20;
      sampled = sampled || !row.mean.exact;
    }
    text += fmt::format("\n{}: {}\n{:<{}}", level_name(level), distance_text(level), "correction", name_width);
    for (const FigureName& figure : kFigures) {
      if (std::string(figure.name) == "bias_whole" && !level.truncated) continue;
      const char* shown = heading(figure.name);
      text += padded(shown ? shown : figure.name, width + 1);
    }
    text += '\n';
    for (const AuditRow& row : by_error(level)) {
      text += fmt::format("{:<{}}", row.correction, name_width);
      for (const FigureName& figure : kFigures) {
        if (std::string(figure.name) == "bias_whole" && !level.truncated) continue;
        text += padded(cell(row.mean.*figure.member, row.mean.exact), width + 1);
      }
      text += '\n';
    }
  }
  if (sampled) text += "\n±: sampled batches, half of the 95 % interval; all else is enumerated\n";
  return text;
}

std::string audit_table(const AuditReport& report) {
  std::string header = "| correction |", rule = "| --- |", kl = "| KL per token |";
  for (const AuditLevel& level : report.levels) {
    header += fmt::format(" {} |", level_name(level));
    rule += " --- |";
    kl += fmt::format(" {} |", digits(level.distance.kl));
  }
  std::string text = header + '\n' + rule + '\n' + kl + '\n';
  for (size_t i = 0; !report.levels.empty() && i < report.levels.front().rows.size(); ++i) {
    text += fmt::format("| `{}` |", report.levels.front().rows[i].correction);
    for (const AuditLevel& level : report.levels) {
      const algos::audit::Figures& f = level.rows[i].mean;
      text += fmt::format(" {}{} / {} / {} |", f.exact ? "" : "~", digits(f.bias.value), digits(f.error.value),
                          digits(std::max(f.drift_up.value, f.drift_down.value)));
    }
    text += '\n';
  }
  return text;
}

nlohmann::json audit_json(const AuditReport& report) {
  using nlohmann::json;
  json levels = json::array();
  for (const AuditLevel& level : report.levels) {
    const algos::audit::Distance& d = level.distance;
    json rows = json::array();
    for (const AuditRow& row : level.rows) {
      json out{{"correction", row.correction}, {"exact", row.mean.exact}};
      if (!row.mean.exact) out["sampled_batches"] = row.mean.batches;
      for (const FigureName& figure : kFigures) {
        out[figure.name] = {{"value", (row.mean.*figure.member).value},
                            {"between_problems", (row.deviation.*figure.member).value}};
        if (!row.mean.exact) out[figure.name]["half_width"] = (row.mean.*figure.member).half_width;
      }
      rows.push_back(std::move(out));
    }
    levels.push_back({{"mismatch", level.mismatch},
                      {"kl", d.kl},
                      {"kl_reverse", d.kl_reverse},
                      {"outside", d.outside},
                      {"max_ratio", d.max_ratio},
                      {"candidate_mass", d.candidate_mass},
                      {"effective_samples", d.effective_samples},
                      {"left_out", level.left_out},
                      {"corrections", std::move(rows)}});
  }
  return {{"policy", report.policy}, {"problems", report.problems}, {"batch", report.batch}, {"levels", levels}};
}

}  // namespace motley::app
