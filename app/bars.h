// A chart of labelled horizontal bars as inline SVG.
#pragma once

#include <string>
#include <vector>

namespace motley::app {

struct Bar {
  std::string label;
  double value;      // finite; negative values go to the left of zero
  std::string text;  // shown beside the bar
};
/// Empty text without bars.
std::string bars_svg(const std::string& title, const std::vector<Bar>& bars);

}  // namespace motley::app
