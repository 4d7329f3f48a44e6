// The frame of a self-contained HTML page. Charts stand in <div class=charts>, large ones in <div class='charts
// large'>.
#pragma once

#include <string>

namespace motley::app {

/// `title` is escaped; `body` is HTML and follows the title's headline.
std::string html_page(const std::string& title, const std::string& body);

/// Text made safe for HTML.
std::string escape_html(const std::string& text);

}  // namespace motley::app
