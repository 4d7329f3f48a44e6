#include "app/page.h"

#include <fmt/format.h>

namespace motley::app {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1480px;padding:0 1rem;color:#222}"
    "h1{margin-bottom:.2rem}.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(420px,1fr));gap:1rem}"
    ".large{grid-template-columns:repeat(auto-fill,minmax(620px,1fr))}"
    "svg{width:100%;background:#fafafa;border:1px solid #e3e3e3;border-radius:6px}svg text{font:11px system-ui}"
    "svg .title{font-weight:600;font-size:13px}"
    "pre{background:#f5f5f5;padding:1rem;overflow:auto;border-radius:6px;font-size:13px}";

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

std::string html_page(const std::string& title, const std::string& body) {
  const std::string shown = escape_html(title);
  return fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>motley: {}</title><style>{}</style><h1>{}</h1>{}</html>\n",
      shown, kStyle, shown, body);
}

}  // namespace motley::app
