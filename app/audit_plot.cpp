#include <fmt/format.h>

#include "app/audit_report.h"
#include "app/curve.h"
#include "app/line_chart.h"

namespace motley::app {
namespace {

using algos::audit::Figures;

constexpr double kFloor = 1e-6;

/// A line per correction over the levels' KL; `value` reads the figure.
template <class Value>
std::string chart(const AuditReport& report, const std::string& title, Value value) {
  LineChart chart{.title = title, .x_name = "KL(q|p), nats per token", .floor = kFloor};
  for (size_t i = 0; !report.levels.empty() && i < report.levels.front().rows.size(); ++i) {
    ChartLine line{report.levels.front().rows[i].correction, {}};
    for (const AuditLevel& level : report.levels) {
      line.points.emplace_back(std::max(level.distance.kl, kFloor), value(level.rows[i].mean));
    }
    chart.lines.push_back(std::move(line));
  }
  return line_chart_svg(chart);
}

std::string error_chart(const AuditReport& report) {
  return chart(report, fmt::format("mean squared error at {} sequences / |exact gradient|²", report.batch),
               [](const Figures& f) { return f.error.value; });
}

}  // namespace

std::string audit_plot(const AuditReport& report, bool page) {
  if (!page) return error_chart(report) + "\n";
  std::string out =
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>motley audit</title><style>body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1480px;"
      "padding:0 1rem;color:#222}main{display:grid;grid-template-columns:repeat(auto-fill,minmax(620px,1fr));gap:1rem}"
      "pre{background:#f5f5f5;padding:1rem;overflow:auto;font-size:13px}</style><h1>motley audit</h1><main>";
  out += error_chart(report);
  out += chart(report, "squared bias / |exact gradient|²", [](const Figures& f) { return f.bias.value; });
  out += chart(report, "drift at constant advantage / |exact gradient|², the larger of A = 1 and A = -1",
               [](const Figures& f) { return std::max(f.drift_up.value, f.drift_down.value); });
  out += chart(report, "1 - cosine with the exact gradient", [](const Figures& f) { return 1.0 - f.cosine.value; });
  return out + "</main><pre>" + escape_html(audit_text(report)) + "</pre></html>\n";
}

}  // namespace motley::app
