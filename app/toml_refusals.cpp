#include "app/toml_refusals.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley::app {

void refuse_unknown_top(const Member& member, const std::vector<std::string>& names, const std::string& nearest) {
  const bool table = member.value.kind == Node::Kind::table || member.value.kind == Node::Kind::array;
  throw InputError(member.at, fmt::format("unknown {} '{}'", table ? "table" : "key", member.key),
                   "allowed: " + join(names, ", "), nearest);
}

void refuse_unknown_key(const Member& member, const std::string& section, bool list,
                        const std::vector<std::string>& keys, const std::string& nearest) {
  throw InputError(
      member.at, fmt::format("unknown key '{}' in {}", member.key, list ? "[[" + section + "]]" : "[" + section + "]"),
      "allowed: " + join(keys, ", "), nearest);
}

void refuse_section(const Member& member, const std::string& wanted) {
  throw InputError(member.at, fmt::format("{} is {}", member.key, member.value.describe()), "allowed: " + wanted);
}

void require_section(const Member& member, bool list) {
  const Node& value = member.value;
  if (!list) {
    if (value.kind != Node::Kind::table) refuse_section(member, "a table, [" + member.key + "]");
    return;
  }
  const auto is_table = [](const Node& item) { return item.kind == Node::Kind::table; };
  if (value.kind != Node::Kind::array || value.items.empty() ||
      !std::all_of(value.items.begin(), value.items.end(), is_table))
    refuse_section(member, "tables, [[" + member.key + "]]");
}

}  // namespace motley::app
