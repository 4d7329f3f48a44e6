// The page of motley mismatch.
#include <fmt/format.h>

#include <cmath>

#include "app/bars.h"
#include "app/line_chart.h"
#include "app/mismatch.h"
#include "app/page.h"

namespace motley::app {
namespace {

using namespace algos::mismatch;

template <class Value>
std::string position_chart(const std::string& title, const MismatchReport& report, Value value) {
  LineChart chart{.title = title};
  for (const Measurement& m : report.measurements) {
    chart.lines.push_back({m.sampler.name, {}});
    for (const Bin& bin : m.summary.by_position) chart.lines.back().points.emplace_back(bin.low, value(bin));
  }
  return line_chart_svg(chart);
}

std::string attribution_chart(const std::string& title, const Attribution& attribution) {
  std::vector<Bar> bars;
  for (const Contribution& unit : attribution.units) {
    if (!unit.differs) continue;
    bars.push_back({unit.name, unit.alone, fmt::format("{:.3g}", unit.alone)});
  }
  bars.push_back({"interaction", attribution.interaction(), fmt::format("{:.3g}", attribution.interaction())});
  bars.push_back({"whole", attribution.whole, fmt::format("{:.3g}", attribution.whole)});
  return bars_svg(title, bars);
}

std::string bin_chart(const std::string& title, const std::vector<Bin>& bins, bool whole_numbers) {
  std::vector<Bar> bars;
  for (const Bin& bin : bins) {
    const double last = whole_numbers ? bin.high - 1 : bin.high;
    const std::string label = last == bin.low ? fmt::format("{:g}", last) : fmt::format("{:g}-{:g}", bin.low, last);
    bars.push_back({label, bin.kl, fmt::format("{:.3g}, {} tokens", bin.kl, with_commas(bin.tokens))});
  }
  return bars_svg(title, bars);
}

std::string difference_chart(const Histogram& histogram) {
  std::vector<Bar> bars;
  const auto steps = static_cast<double>(histogram.counts.size());
  for (size_t i = 0; i < histogram.counts.size(); i += 2) {  // two steps a bar
    const double low = histogram.edge * (2.0 * static_cast<double>(i) / steps - 1.0);
    const int64_t count = histogram.counts[i] + histogram.counts[i + 1];
    bars.push_back({fmt::format("{:.2g}", low), static_cast<double>(count), with_commas(count)});
  }
  return bars_svg("p - q of drawn tokens, from here on (the ends hold all beyond)", bars);
}

}  // namespace

std::string mismatch_page(const MismatchReport& report) {
  std::string page = "<pre>" + escape_html(mismatch_text(report)) + "</pre><div class=charts>";
  page += position_chart("KL(q||p) per token by position", report, [](const Bin& bin) { return bin.kl; });
  page += position_chart("log q - log p by position", report, [](const Bin& bin) { return bin.gap; });
  page += "</div>";
  for (const Measurement& m : report.measurements) {
    page += "<h2>" + escape_html(mismatch_title(m)) + "</h2><div class=charts>";
    if (m.by_operation) page += attribution_chart("KL(q||p) of operations switched alone", *m.by_operation);
    if (m.by_layer) page += attribution_chart("KL(q||p) of layers switched alone", *m.by_layer);
    page += bin_chart("KL(q||p) by the trainer's largest probability", m.summary.by_top1, false);
    page += bin_chart("KL(q||p) per token by the response's length", m.summary.by_length, true);
    page += difference_chart(m.summary.histogram) + "</div><pre>" + escape_html(mismatch_section(m)) + "</pre>";
  }
  return html_page("mismatch: " + report.model, page);
}

}  // namespace motley::app
