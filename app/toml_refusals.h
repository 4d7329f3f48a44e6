// The refusals that every TOML shares: what is unknown, and what is no table.
#pragma once

#include <string>
#include <vector>

#include "app/document.h"

namespace motley::app {

/// A key or table at the top of the file.
[[noreturn]] void refuse_unknown_top(const Member& member, const std::vector<std::string>& names,
                                     const std::string& nearest);
/// `list`: the section is a list of tables.
[[noreturn]] void refuse_unknown_key(const Member& member, const std::string& section, bool list,
                                     const std::vector<std::string>& keys, const std::string& nearest);
[[noreturn]] void refuse_section(const Member& member, const std::string& wanted);
/// Refuses a section that is not a table, or, if `list`, not a list of at least one table.
void require_section(const Member& member, bool list);

}  // namespace motley::app
