#include "app/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/curve.h"

namespace motley::app {
namespace {

constexpr double kPlotWidth = 520, kPlotHeight = 340, kLeft = 60, kTop = 30, kBottom = 44, kLegend = 180,
                 kLegendRow = 15;

/// Decades of an axis.
struct Decades {
  double low = std::numeric_limits<double>::infinity(), high = -low;  // log10
  void include(double value) {
    low = std::min(low, std::log10(value));
    high = std::max(high, std::log10(value));
  }
  void round() {
    low = std::floor(low + 1e-9);
    high = std::max(std::ceil(high - 1e-9), low + 1.0);
  }
  double share(double value) const { return (std::log10(value) - low) / (high - low); }
};

struct Frame {
  Decades x, y;
  double floor;
  double at_x(double value) const { return kLeft + x.share(value) * kPlotWidth; }
  double at_y(double value) const { return kTop + (1.0 - y.share(std::max(value, floor))) * kPlotHeight; }
};

std::string axes(const Frame& f, const LineChart& chart) {
  std::string out;
  for (double decade = f.x.low; decade <= f.x.high + 0.5; decade += 1.0) {
    const double x = f.at_x(std::pow(10.0, decade));
    out += fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#e3e3e3'/>", x, kTop,
                       kTop + kPlotHeight);
    out +=
        fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>1e{:.0f}</text>", x, kTop + kPlotHeight + 15, decade);
  }
  for (double decade = f.y.low; decade <= f.y.high + 0.5; decade += 1.0) {
    const double y = f.at_y(std::pow(10.0, decade));
    const char* below = std::abs(std::pow(10.0, decade) / f.floor - 1.0) < 1e-9 ? "≤ " : "";
    out += fmt::format("<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#e3e3e3'/>", kLeft,
                       kLeft + kPlotWidth, y);
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}1e{:.0f}</text>", kLeft - 5, y + 4, below, decade);
  }
  return out + fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>", kLeft + kPlotWidth / 2,
                           kTop + kPlotHeight + 34, escape_html(chart.x_name));
}

/// Hues a golden angle apart, so that any number of neighbours differ; every other line is dashed.
std::string stroke(size_t place) {
  const double hue = std::fmod(137.508 * static_cast<double>(place), 360.0);
  return fmt::format("hsl({:.0f},65%,{}%)", hue, place % 3 == 1 ? 55 : 40);
}

std::string line(const Frame& f, const ChartLine& data, size_t place) {
  std::vector<std::pair<double, double>> points;
  for (const auto& point : data.points) {
    if (!std::isnan(point.second)) points.push_back(point);
  }
  std::sort(points.begin(), points.end());
  const std::string colour = stroke(place);
  std::string path, dots;
  for (const auto& [x, y] : points) {
    path += fmt::format("{:.1f},{:.1f} ", f.at_x(x), f.at_y(y));
    dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}: {:.4g} at {:.3g}</title></circle>",
                        f.at_x(x), f.at_y(y), colour, escape_html(data.name), y, x);
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.4'{}/>", path, colour,
                     place % 2 ? " stroke-dasharray='5 3'" : "") +
         dots;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  Frame f{{}, {}, chart.floor};
  bool any = false;
  for (const ChartLine& data : chart.lines) {
    for (const auto& [x, y] : data.points) {
      if (std::isnan(y)) continue;
      f.x.include(x);
      f.y.include(std::max(y, chart.floor));
      any = true;
    }
  }
  if (!any) return "";
  f.x.round();
  f.y.round();
  const double height =
      std::max(kTop + kPlotHeight + kBottom, kTop + kLegendRow * static_cast<double>(chart.lines.size() + 1));
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' font-family='system-ui,sans-serif' font-size='11' "
      "role='img' aria-label='{}'><rect width='100%' height='100%' fill='#fafafa'/>",
      kLeft + kPlotWidth + kLegend, height, escape_html(chart.title));
  out += fmt::format("<text x='{}' y='18' font-size='13' font-weight='600'>{}</text>", kLeft, escape_html(chart.title));
  out += axes(f, chart);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    out += line(f, chart.lines[i], i);
    out += fmt::format("<text x='{}' y='{}' fill='{}'>{} {}</text>", kLeft + kPlotWidth + 12,
                       kTop + kLegendRow * static_cast<double>(i + 1), stroke(i), i % 2 ? "╌" : "─",
                       escape_html(chart.lines[i].name));
  }
  return out + "</svg>";
}

}  // namespace motley::app
