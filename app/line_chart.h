// A chart of lines over a number, both axes logarithmic, as inline SVG: for figures that span powers of ten.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace motley::app {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x > 0; any y, NaN left out
};
struct LineChart {
  std::string title, x_name;
  double floor = 1e-6;  // smaller y are drawn there, and the axis says so
  std::vector<ChartLine> lines;
};

/// Lines keep their colour by place, so that charts with the same lines compare; the legend is at the right. Points
/// tell name and value on hovering. Needs no style sheet. Empty text when there is no point.
std::string line_chart_svg(const LineChart& chart);

}  // namespace motley::app
