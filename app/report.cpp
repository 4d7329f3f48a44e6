#include "app/report.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/closing_table.h"
#include "app/line_chart.h"
#include "app/page.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

using Curves = std::map<std::string, ChartLine>;  // by metric name

Curves read_curves(const std::filesystem::path& file) {
  Curves curves;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("update") || !row["update"].is_number()) continue;
    const double update = row["update"].get<double>();
    for (const auto& [name, value] : row.items())
      if (value.is_number() && name != "update") curves[name].points.emplace_back(update, value.get<double>());
  }
  return curves;
}

/// Draws the curves of a page, with its marks.
class Charts {
 public:
  Charts(const Curves& curves, std::vector<double> marks) : curves_(curves), marks_(std::move(marks)) {}
  /// Those of `names` that exist.
  std::string of(const std::string& title, const std::vector<std::string>& names) const {
    LineChart chart{.title = title, .marks = marks_};
    for (const std::string& name : names)
      if (const auto it = curves_.find(name); it != curves_.end()) chart.lines.push_back({name, it->second.points});
    return line_chart_svg(chart);
  }
  /// "<prefix>/<part>/<metric>" as one chart with a line per part.
  std::string by(const std::string& prefix, const std::string& metric, const std::string& title) const {
    LineChart chart{.title = title, .marks = marks_};
    for (const auto& [name, curve] : curves_) {
      const size_t part = prefix.size() + 1;
      if (name.size() <= part + metric.size() + 1 || !name.starts_with(prefix + "/") || !name.ends_with("/" + metric))
        continue;
      const std::string middle = name.substr(part, name.size() - part - metric.size() - 1);
      if (middle.find('/') == std::string::npos) chart.lines.push_back({middle, curve.points});
    }
    return line_chart_svg(chart);
  }

 private:
  const Curves& curves_;
  std::vector<double> marks_;
};

std::vector<std::string> starting_with(const Curves& curves, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& [name, series] : curves)
    if (name.rfind(prefix, 0) == 0 && name != "eval/version") names.push_back(name);
  return names;
}

/// First and last update of each time that an alarm was raised.
std::vector<std::pair<double, double>> raised(const ChartLine& alarm) {
  std::vector<std::pair<double, double>> spans;
  bool before = false;
  for (const auto& [update, value] : alarm.points) {
    if (value != 0.0 && !before) spans.emplace_back(update, update);
    if (value != 0.0) spans.back().second = update;
    before = value != 0.0;
  }
  return spans;
}

struct Alarms {
  std::string text;           // a list, as HTML
  std::vector<double> marks;  // where one is raised
};

Alarms alarms_of(const Curves& curves) {
  Alarms alarms;
  for (const std::string& name : starting_with(curves, "alarm/")) {
    std::string times;
    for (const auto& [first, last] : raised(curves.at(name))) {
      times += fmt::format("{}{} to {}", times.empty() ? "" : ", ", first, last);
      alarms.marks.push_back(first);
    }
    if (!times.empty()) alarms.text += fmt::format("<li>{}: updates {}</li>", escape_html(name.substr(6)), times);
  }
  alarms.text = alarms.text.empty() ? "<p>None was raised.</p>" : "<ul>" + alarms.text + "</ul>";
  return alarms;
}

}  // namespace

void write_report(const std::filesystem::path& folder, const actors::RunSummary& summary) {
  const Curves curves = read_curves(folder / "metrics.jsonl");
  const Alarms alarms = alarms_of(curves);
  const Charts charts(curves, alarms.marks);
  std::string page = fmt::format("<p>{} updates in {:.0f} s{}{}.</p>", summary.updates, summary.seconds,
                                 summary.interrupted ? ", stopped before the end" : "",
                                 summary.alarm.empty() ? "" : " by its watch: " + escape_html(summary.alarm));
  page += "<h2>Sampler groups</h2><pre>" + escape_html(closing_table(summary)) + "</pre><h2>Alarms</h2>" + alarms.text +
          "<h2>Curves</h2><div class=charts>";
  page += charts.of("held-out evaluation", starting_with(curves, "eval/"));
  page += charts.of("reward/mean", {"reward/mean"});
  for (const std::string kind : {"group", "format", "staleness"}) {
    const std::string suffix = kind == "staleness" ? " by versions since the draw" : " by " + kind;
    page += charts.by(kind, "kl/k3", "kl/k3" + suffix);
    page += charts.by(kind, "ratio/outside", "ratio/outside [0.2, 5]" + suffix);
  }
  page +=
      charts.of("KL told apart by the probe", {"probe/kl/mismatch", "probe/kl/staleness", "probe/kl/sampler_trainer"});
  page += charts.by("group", "probe/kl/mismatch", "mismatch by group, without staleness");
  page += charts.by("drift", "squared_norm", "drift of corrections: |E g|^2 at a constant advantage");
  page += charts.by("group", "kl/sampler_trainer", "kl/sampler_trainer by group");
  page += charts.by("group", "staleness/mean", "staleness/mean by group");
  page += charts.by("group", "share", "share of samples by group");
  page += charts.of("both KL directions", {"kl/sampler_trainer", "kl/k3", "kl/trainer_sampler"});
  page += charts.of("effective sample size", {"ess", "ess_in_band"});
  page += charts.of("log tail ratio", {"mass/log_tail_ratio_median", "mass/log_tail_ratio_p99"});
  for (const char* name : {"ratio/max", "ratio/masked", "ratio/chi2", "log_ppl_gap", "entropy", "grad_norm", "loss",
                           "loss_scale", "staleness/max", "episode/tokens", "episode/read_tokens", "episode/turns",
                           "episode/format_error", "reply/format_error"})
    page += charts.of(name, {name});
  page += charts.of("how episodes end, as shares", starting_with(curves, "episode/end/"));
  page += charts.of("tokens per second", {"time/tokens_per_second"});
  page += charts.of("seconds per update", {"time/update", "time/train", "time/wait"});
  page += "</div><h2>Experiment</h2><pre>" + escape_html(read_file(folder / "experiment.toml")) + "</pre>";
  write_file_atomically(folder / "report.html", html_page(folder.filename().string(), page));
}

}  // namespace motley::app
