#include "app/page.h"

#include <fmt/format.h>

#include "app/curve.h"

namespace motley::app {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1480px;padding:0 1rem;color:#222}"
    "h1{margin-bottom:.2rem}.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(420px,1fr));gap:1rem}"
    "svg{width:100%;background:#fafafa;border:1px solid #e3e3e3;border-radius:6px}svg text{font:11px system-ui}"
    "svg .title{font-weight:600;font-size:13px}polyline{fill:none;stroke-width:1.4}.grid{stroke:#e3e3e3}"
    ".mark{stroke:#c00;stroke-dasharray:4 3}"
    "pre{background:#f5f5f5;padding:1rem;overflow:auto;border-radius:6px;font-size:13px}";

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  const std::string shown = escape_html(title);
  return fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>motley: {}</title><style>{}</style><h1>{}</h1>{}</html>\n",
      shown, kStyle, shown, body);
}

}  // namespace motley::app
