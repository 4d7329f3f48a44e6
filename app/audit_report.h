// What `motley audit` found, and how it is written: text, Markdown table, JSON, plot.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "algos/audit/statistics.h"

namespace motley::app {

/// One correction at one mismatch: means over the problems, with the standard deviation between them.
struct AuditRow {
  std::string correction;
  algos::audit::Figures mean, deviation;
};
struct AuditLevel {
  std::string mismatch;  // empty: of a problem from a file
  algos::audit::Distance distance;
  bool truncated = false;
  int64_t left_out = 0;  // problems whose exact gradient is 0
  std::vector<AuditRow> rows;
};
struct AuditReport {
  int64_t batch = 0, problems = 0;
  std::string policy;  // in words
  std::vector<AuditLevel> levels;
};

/// A block per mismatch, rows by mean squared error.
std::string audit_text(const AuditReport& report);
/// A row per correction, a column per mismatch: bias / mean squared error / drift.
std::string audit_table(const AuditReport& report);
nlohmann::json audit_json(const AuditReport& report);
/// A self-contained page for a name that ends with .html, one chart of the error for .svg.
std::string audit_plot(const AuditReport& report, bool page);

}  // namespace motley::app
