// The frame of a self-contained HTML page.
#pragma once

#include <string>

namespace motley::app {

/// `title` is escaped; `body` is HTML and follows the title's headline.
std::string html_page(const std::string& title, const std::string& body);

}  // namespace motley::app
