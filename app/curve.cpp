#include "app/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace motley::app {
namespace {

constexpr int kWidth = 460, kHeight = 220, kLeft = 62, kRight = 12, kTop = 30, kBottom = 42;
constexpr std::array<const char*, 6> kColours{"#1f6f8b", "#c8553d", "#5b8c3a", "#7a4fa3", "#b8860b", "#444444"};

struct Frame {
  int64_t first, last;
  double low, high;
  double x(int64_t update) const {
    const double share = last > first ? static_cast<double>(update - first) / static_cast<double>(last - first) : 0.5;
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double y(double value) const { return kTop + (high - value) / (high - low) * (kHeight - kTop - kBottom); }
};

Frame frame_of(const std::vector<Series>& series) {
  Frame f{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
          std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Series& s : series)
    for (const auto& [update, value] : s.points) {
      f.first = std::min(f.first, update);
      f.last = std::max(f.last, update);
      f.low = std::min(f.low, value);
      f.high = std::max(f.high, value);
    }
  if (f.high == f.low) {  // a flat line sits in the middle
    const double margin = f.high == 0 ? 1.0 : std::abs(f.high) * 0.1;
    f.low -= margin;
    f.high += margin;
  }
  return f;
}

/// Round steps of 1, 2 or 5 times a power of ten, about four of them.
double tick_step(double span) {
  const double raw = span / 4, magnitude = std::pow(10.0, std::floor(std::log10(raw)));
  const double part = raw / magnitude;
  return magnitude * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

std::string axes(const Frame& f) {
  std::string out;
  const double step = tick_step(f.high - f.low);
  for (double tick = std::ceil(f.low / step) * step; tick <= f.high + step * 1e-9; tick += step) {
    const double y = f.y(tick), shown = std::abs(tick) < step * 1e-9 ? 0 : tick;
    out += fmt::format("<line class=grid x1={} x2={} y1={:.1f} y2={:.1f} />", kLeft, kWidth - kRight, y, y);
    out += fmt::format("<text x={} y={:.1f} text-anchor=end>{:.4g}</text>", kLeft - 5, y + 4, shown);
  }
  out += fmt::format("<text x={} y={}>{}</text><text x={} y={} text-anchor=end>{}</text>", kLeft,
                     kHeight - kBottom + 15, f.first, kWidth - kRight, kHeight - kBottom + 15, f.last);
  return out;
}

/// Points in drawing order: within a pixel column the first, the extremes in their order, and the last.
std::string path(const Frame& f, const Series& series) {
  std::string points;
  const auto& p = series.points;
  for (size_t i = 0; i < p.size();) {
    size_t end = i, low = i, high = i;
    const auto column = static_cast<int>(f.x(p[i].first));
    for (; end < p.size() && static_cast<int>(f.x(p[end].first)) == column; ++end) {
      if (p[end].second < p[low].second) low = end;
      if (p[end].second > p[high].second) high = end;
    }
    std::array<size_t, 4> shown{i, std::min(low, high), std::max(low, high), end - 1};
    size_t previous = p.size();
    for (const size_t k : shown) {
      if (k == previous) continue;
      points += fmt::format("{:.1f},{:.1f} ", f.x(p[k].first), f.y(p[k].second));
      previous = k;
    }
    i = end;
  }
  return points;
}

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string curve_svg(const std::string& title, const std::vector<Series>& series, const std::vector<int64_t>& marks) {
  const Frame f = frame_of(series);
  if (f.first > f.last) return "";
  std::string out =
      fmt::format("<svg viewBox='0 0 {} {}' role=img aria-label='{}'>", kWidth, kHeight, escape_html(title));
  out += fmt::format("<text class=title x={} y=16>{}</text>", kLeft, escape_html(title)) + axes(f);
  for (const int64_t mark : marks)
    if (mark >= f.first && mark <= f.last)
      out += fmt::format("<line class=mark x1={0:.1f} x2={0:.1f} y1={1} y2={2} />", f.x(mark), kTop, kHeight - kBottom);
  double legend = kLeft;
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    const char* colour = kColours[i % kColours.size()];
    if (series[i].points.size() == 1)
      out += fmt::format("<circle cx={:.1f} cy={:.1f} r=3 fill='{}' />", f.x(series[i].points[0].first),
                         f.y(series[i].points[0].second), colour);
    else
      out += fmt::format("<polyline points='{}' stroke='{}' />", path(f, series[i]), colour);
    if (series.size() > 1) {
      out += fmt::format("<text x={:.0f} y={} fill='{}'>{}</text>", legend, kHeight - 8, colour,
                         escape_html(series[i].name));
      legend += 9.0 + 7.0 * static_cast<double>(series[i].name.size());
    }
  }
  return out + "</svg>";
}

}  // namespace motley::app
