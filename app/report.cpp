#include "app/report.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/closing_table.h"
#include "app/curve.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

using Curves = std::map<std::string, Series>;  // by metric name

constexpr const char* kStyle =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1480px;padding:0 1rem;color:#222}"
    "h1{margin-bottom:.2rem}.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(420px,1fr));gap:1rem}"
    "svg{width:100%;background:#fafafa;border:1px solid #e3e3e3;border-radius:6px}svg text{font:11px system-ui}"
    "svg .title{font-weight:600;font-size:13px}polyline{fill:none;stroke-width:1.4}.grid{stroke:#e3e3e3}"
    "pre{background:#f5f5f5;padding:1rem;overflow:auto;border-radius:6px;font-size:13px}";

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Curves read_curves(const std::filesystem::path& file) {
  Curves curves;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("update")) continue;
    const int64_t update = row["update"].get<int64_t>();
    for (const auto& [name, value] : row.items())
      if (value.is_number() && name != "update") curves[name].points.emplace_back(update, value.get<double>());
  }
  return curves;
}

/// All curves whose name is `metric`, or "group/<name>/<metric>" as one chart with a line per group.
std::string chart(const Curves& curves, const std::string& title, const std::vector<std::string>& names) {
  std::vector<Series> series;
  for (const std::string& name : names)
    if (const auto it = curves.find(name); it != curves.end()) series.push_back({name, it->second.points});
  return curve_svg(title, series);
}

std::string group_chart(const Curves& curves, const std::string& title, const std::string& metric,
                        const std::vector<actors::GroupSummary>& groups) {
  std::vector<Series> series;
  for (const auto& group : groups)
    if (const auto it = curves.find("group/" + group.name + "/" + metric); it != curves.end())
      series.push_back({group.name, it->second.points});
  return curve_svg(title, series);
}

std::vector<std::string> starting_with(const Curves& curves, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& [name, series] : curves)
    if (name.rfind(prefix, 0) == 0 && name != "eval/version") names.push_back(name);
  return names;
}

}  // namespace

void write_report(const std::filesystem::path& folder, const actors::RunSummary& summary) {
  const Curves curves = read_curves(folder / "metrics.jsonl");
  const std::string title = escape_html(folder.filename().string());
  std::string page = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>motley: {}</title><style>{}</style><h1>{}</h1><p>{} updates in {:.0f} s{}.</p>",
      title, kStyle, title, summary.updates, summary.seconds, summary.interrupted ? ", stopped before the end" : "");
  page +=
      "<h2>Sampler groups</h2><pre>" + escape_html(closing_table(summary)) + "</pre><h2>Curves</h2><div class=charts>";
  page += chart(curves, "held-out evaluation", starting_with(curves, "eval/"));
  page += chart(curves, "reward/mean", {"reward/mean"});
  page += group_chart(curves, "kl/sampler_trainer by group", "kl/sampler_trainer", summary.groups);
  page += group_chart(curves, "ratio/outside [0.2, 5] by group", "ratio/outside", summary.groups);
  page += group_chart(curves, "staleness/mean by group", "staleness/mean", summary.groups);
  page += group_chart(curves, "share of samples by group", "share", summary.groups);
  page += chart(curves, "kl/sampler_trainer", {"kl/sampler_trainer", "kl/k3"});
  for (const char* name : {"ratio/max", "ratio/masked", "ess", "entropy", "grad_norm", "loss", "loss_scale",
                           "sc/tail_ratio_median", "staleness/max", "episode/tokens", "episode/format_error"})
    page += chart(curves, name, {name});
  page += chart(curves, "tokens per second", {"time/tokens_per_second"});
  page += chart(curves, "seconds per update", {"time/update", "time/train", "time/wait"});
  page += "</div><h2>Experiment</h2><pre>" + escape_html(read_text(folder / "experiment.toml")) + "</pre></html>\n";
  write_file_atomically(folder / "report.html", page);
}

}  // namespace motley::app
