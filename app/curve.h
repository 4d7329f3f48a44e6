// One chart of the report as inline SVG: several series over updates, with axes and a legend.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace motley::app {

struct Series {
  std::string name;
  std::vector<std::pair<int64_t, double>> points;  // update, value; ascending updates, finite values
};

/// Every pixel column shows the smallest and the largest value that falls into it, so no spike is lost. Empty text when
/// no series has a point. `marks`: updates at which something happened, as vertical lines.
std::string curve_svg(const std::string& title, const std::vector<Series>& series,
                      const std::vector<int64_t>& marks = {});

/// Text made safe for HTML.
std::string escape_html(const std::string& text);

}  // namespace motley::app
