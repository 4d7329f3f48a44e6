#include <fmt/format.h>

#include <algorithm>

#include "app/audit_report.h"
#include "app/line_chart.h"
#include "app/page.h"

namespace motley::app {
namespace {

using algos::audit::Figures;

constexpr double kFloor = 1e-6;

/// A line per correction over the levels' KL; `value` reads the figure.
template <class Value>
std::string chart(const AuditReport& report, const std::string& title, bool own_file, Value value) {
  LineChart chart{
      .title = title, .x_name = "KL(q|p), nats per token", .logarithmic = true, .floor = kFloor, .own_file = own_file};
  for (size_t i = 0; !report.levels.empty() && i < report.levels.front().rows.size(); ++i) {
    ChartLine line{report.levels.front().rows[i].correction, {}};
    for (const AuditLevel& level : report.levels) {
      line.points.emplace_back(std::max(level.distance.kl, kFloor), value(level.rows[i].mean));
    }
    std::sort(line.points.begin(), line.points.end());
    chart.lines.push_back(std::move(line));
  }
  return line_chart_svg(chart);
}

std::string error_chart(const AuditReport& report, bool own_file) {
  return chart(report, fmt::format("mean squared error at {} sequences / |exact gradient|²", report.batch), own_file,
               [](const Figures& f) { return f.error.value; });
}

}  // namespace

std::string audit_plot(const AuditReport& report, bool page) {
  if (!page) return error_chart(report, true) + "\n";
  std::string charts = error_chart(report, false);
  charts += chart(report, "squared bias / |exact gradient|²", false, [](const Figures& f) { return f.bias.value; });
  charts += chart(report, "drift at constant advantage / |exact gradient|², the larger of A = 1 and A = -1", false,
                  [](const Figures& f) { return std::max(f.drift_up.value, f.drift_down.value); });
  charts +=
      chart(report, "1 - cosine with the exact gradient", false, [](const Figures& f) { return 1.0 - f.cosine.value; });
  return html_page("audit",
                   "<div class='charts large'>" + charts + "</div><pre>" + escape_html(audit_text(report)) + "</pre>");
}

}  // namespace motley::app
