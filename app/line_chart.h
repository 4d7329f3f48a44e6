// A chart of lines over a number as inline SVG that needs no style sheet.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace motley::app {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x, finite; y that is not finite is left out
};
struct LineChart {
  std::string title;
  std::string x_name = "";  // empty: left to the title
  std::vector<ChartLine> lines = {};
  std::vector<double> marks = {};  // x at which something happened: vertical lines
  bool logarithmic = false;        // both axes, for figures that span powers of ten: then x > 0
  double floor = 1e-6;             // of a logarithmic y axis: smaller y are drawn there, and the axis says so
  bool own_file = false;           // not part of a page: names the SVG namespace
};

/// Every pixel column of a line shows the smallest and the largest value that falls into it, so no spike is lost. Lines
/// keep their colour by place, so that charts with the same lines compare. Empty text when there is no point.
std::string line_chart_svg(const LineChart& chart);

}  // namespace motley::app
