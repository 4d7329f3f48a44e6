#include "app/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/page.h"

namespace motley::app {

std::string bars_svg(const std::string& title, const std::vector<Bar>& bars) {
  if (bars.empty()) return "";
  constexpr int kWidth = 460, kLabels = 110, kTexts = 130, kTop = 30, kRow = 17;
  double low = 0.0, high = 0.0;
  for (const Bar& bar : bars) low = std::min(low, bar.value), high = std::max(high, bar.value);
  const double scale = high > low ? (kWidth - kLabels - kTexts) / (high - low) : 0.0;
  const double zero = kLabels - low * scale;
  std::string out = fmt::format("<svg viewBox='0 0 {} {}' role=img aria-label='{}'>", kWidth,
                                kTop + kRow * static_cast<int>(bars.size()) + 8, escape_html(title));
  out += fmt::format("<text class=title x=8 y=16>{}</text>", escape_html(title));
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const int y = kTop + kRow * static_cast<int>(i);
    const double from = zero + std::min(0.0, bar.value) * scale, width = std::abs(bar.value) * scale;
    out += fmt::format("<text x={} y={} text-anchor=end>{}</text>", kLabels - 6, y + 10, escape_html(bar.label));
    out += fmt::format("<rect x={:.1f} y={} width={:.1f} height={} fill='{}' />", from, y, width, kRow - 5,
                       bar.value < 0.0 ? "#c8553d" : "#1f6f8b");
    out +=
        fmt::format("<text x={:.1f} y={}>{}</text>", std::max(zero, from + width) + 5, y + 10, escape_html(bar.text));
  }
  return out + "</svg>";
}

}  // namespace motley::app
