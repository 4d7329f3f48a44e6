#include "app/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "app/page.h"

namespace motley::app {
namespace {

constexpr double kLeft = 62, kRight = 12, kTop = 30, kUnder = 20, kXName = 18, kLegendRow = 15;
constexpr size_t kFewPoints = 20;  // a line of at most these has a dot for each, which tells its value on hovering
constexpr size_t kManyLines = 6;   // of more lines every other one is dashed

struct Tick {
  double value = 0.0;
  std::string text;
};

/// The values that are shown, linear or as decades.
struct Axis {
  bool logarithmic = false;
  double low = std::numeric_limits<double>::infinity(), high = -low;  // log10 of the values if logarithmic

  double scaled(double value) const { return logarithmic ? std::log10(value) : value; }
  double share(double value) const { return high > low ? (scaled(value) - low) / (high - low) : 0.5; }
  void include(double value) {
    low = std::min(low, scaled(value));
    high = std::max(high, scaled(value));
  }
  void whole_decades() {
    low = std::floor(low + 1e-9);
    high = std::max(std::ceil(high - 1e-9), low + 1.0);
  }
  /// Makes room around a value that is the only one, so that it sits in the middle.
  void widen() {
    if (high > low) return;
    const double margin = high == 0 ? 1.0 : std::abs(high) * 0.1;
    low -= margin;
    high += margin;
  }
  /// Decades, or round steps of 1, 2 or 5 times a power of ten, about four of them.
  std::vector<Tick> ticks() const {
    std::vector<Tick> all;
    if (logarithmic) {
      for (double decade = low; decade <= high + 0.5; decade += 1.0)
        all.push_back({std::pow(10.0, decade), fmt::format("1e{:.0f}", decade)});
      return all;
    }
    const double raw = (high - low) / 4, magnitude = std::pow(10.0, std::floor(std::log10(raw))),
                 part = raw / magnitude;
    const double step = magnitude * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
    const double first = std::ceil(low / step);  // counted, since a step may be lost beside a large value
    for (double i = 0; i < 10 && (first + i) * step <= high + step * 1e-9; ++i) {
      const double value = first + i == 0.0 ? 0.0 : (first + i) * step;
      all.push_back({value, fmt::format("{:.4g}", value)});
    }
    return all;
  }
};

struct Frame {
  Axis x, y;
  double width, height;  // of the plot
  double floor;
  double at_x(double value) const { return kLeft + x.share(value) * width; }
  double at_y(double value) const { return kTop + (1.0 - y.share(shown(value))) * height; }
  double shown(double value) const { return y.logarithmic ? std::max(value, floor) : value; }
  double bottom() const { return kTop + height; }
};

Frame frame_of(const LineChart& chart) {
  const bool log = chart.logarithmic;
  Frame f{{log}, {log}, log ? 620.0 : 386.0, log ? 340.0 : 148.0, chart.floor};
  for (const ChartLine& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      if (!std::isfinite(y)) continue;
      f.x.include(x);
      f.y.include(f.shown(y));
    }
  }
  if (f.x.low > f.x.high) return f;  // no point
  if (log) {
    f.x.whole_decades();
    f.y.whole_decades();
  } else {
    f.y.widen();
  }
  return f;
}

std::string axes(const Frame& f, const LineChart& chart) {
  std::string out;
  for (const Tick& tick : f.y.ticks()) {
    const double y = f.at_y(tick.value);
    const bool below = chart.logarithmic && std::abs(tick.value / f.floor - 1.0) < 1e-9;
    out +=
        fmt::format("<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#e3e3e3'/>", kLeft, kLeft + f.width, y);
    out += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{}{}</text>", kLeft - 5, y + 4, below ? "≤ " : "",
                       tick.text);
  }
  const double under = f.bottom() + 15;
  if (!chart.logarithmic) {
    out += fmt::format("<text x='{}' y='{}'>{:.10g}</text><text x='{}' y='{}' text-anchor='end'>{:.10g}</text>", kLeft,
                       under, f.x.low, kLeft + f.width, under, f.x.high);
  }
  for (const Tick& tick : chart.logarithmic ? f.x.ticks() : std::vector<Tick>()) {
    const double x = f.at_x(tick.value);
    out += fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#e3e3e3'/>", x, kTop, f.bottom());
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>", x, under, tick.text);
  }
  for (const double mark : chart.marks) {
    if (mark < f.x.low || mark > f.x.high) continue;
    out += fmt::format(
        "<line class='mark' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#c00' stroke-dasharray='4 3'/>",
        f.at_x(mark), kTop, f.bottom());
  }
  if (chart.x_name.empty()) return out;
  return out + fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>", kLeft + f.width / 2,
                           f.bottom() + kUnder + 12, escape_html(chart.x_name));
}

/// Hues a golden angle apart, so that any number of neighbours differ.
std::string colour(size_t place) {
  const double hue = std::fmod(200.0 + 137.508 * static_cast<double>(place), 360.0);
  return fmt::format("hsl({:.0f},65%,{}%)", hue, place % 3 == 1 ? 55 : 40);
}

bool dashed(const LineChart& chart, size_t place) { return chart.lines.size() > kManyLines && place % 2 == 1; }

/// Points in drawing order: within a pixel column the first, the extremes in their order, and the last.
std::string path(const Frame& f, const std::vector<std::pair<double, double>>& p) {
  std::string points;
  for (size_t i = 0; i < p.size();) {
    size_t end = i, low = i, high = i;
    const auto column = static_cast<int>(f.at_x(p[i].first));
    for (; end < p.size() && static_cast<int>(f.at_x(p[end].first)) == column; ++end) {
      if (p[end].second < p[low].second) low = end;
      if (p[end].second > p[high].second) high = end;
    }
    const std::array<size_t, 4> shown{i, std::min(low, high), std::max(low, high), end - 1};
    size_t previous = p.size();
    for (const size_t k : shown) {
      if (k == previous) continue;
      points += fmt::format("{:.1f},{:.1f} ", f.at_x(p[k].first), f.at_y(p[k].second));
      previous = k;
    }
    i = end;
  }
  return points;
}

std::string line(const Frame& f, const LineChart& chart, size_t place) {
  const ChartLine& data = chart.lines[place];
  std::vector<std::pair<double, double>> points;
  std::copy_if(data.points.begin(), data.points.end(), std::back_inserter(points),
               [](const auto& point) { return std::isfinite(point.second); });
  std::string out = fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.4'{}/>", path(f, points),
                                colour(place), dashed(chart, place) ? " stroke-dasharray='5 3'" : "");
  if (points.size() > kFewPoints) return out;
  for (const auto& [x, y] : points) {
    out += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'><title>{}: {:.4g} at {:.4g}</title></circle>",
                       f.at_x(x), f.at_y(y), colour(place), escape_html(data.name), y, x);
  }
  return out;
}

/// The lines' names below the plot, in as many rows as they need, from `top` on; moves `top` below them.
std::string legend(const Frame& f, const LineChart& chart, double& top) {
  std::string out;
  if (chart.lines.size() < 2) return out;
  double x = kLeft;
  top += kLegendRow;
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    if (chart.lines[i].points.empty()) continue;
    const double width = 25.0 + 6.5 * static_cast<double>(chart.lines[i].name.size());
    if (x > kLeft && x + width > kLeft + f.width) {
      x = kLeft;
      top += kLegendRow;
    }
    out += fmt::format("<text x='{:.0f}' y='{}' fill='{}'>{} <tspan>{}</tspan></text>", x, top - 4, colour(i),
                       dashed(chart, i) ? "╌" : "─", escape_html(chart.lines[i].name));
    x += width;
  }
  return out;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  const Frame f = frame_of(chart);
  if (f.x.low > f.x.high) return "";
  std::string drawn = axes(f, chart);
  for (size_t i = 0; i < chart.lines.size(); ++i) drawn += line(f, chart, i);
  double height = f.bottom() + kUnder + (chart.x_name.empty() ? 0.0 : kXName);
  drawn += legend(f, chart, height);
  return fmt::format(
             "<svg {}viewBox='0 0 {} {}' font-family='system-ui,sans-serif' font-size='11' role='img' "
             "aria-label='{}'><rect width='100%' height='100%' fill='#fafafa'/>",
             chart.own_file ? "xmlns='http://www.w3.org/2000/svg' " : "", kLeft + f.width + kRight, height + 4,
             escape_html(chart.title)) +
         fmt::format("<text class='title' x='{}' y='18' font-size='13' font-weight='600'>{}</text>", kLeft,
                     escape_html(chart.title)) +
         drawn + "</svg>";
}

}  // namespace motley::app
