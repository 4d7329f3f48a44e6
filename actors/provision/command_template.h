// A command of the user's with places to fill in: a list of words, each handed to the program as it is, without a shell
// between. So no name, path or address can become a command, and nothing has to be quoted.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace motley::actors {

/// What stands in braces in a word: lower-case letters alone, so that '{print $1}' and '{.items[*]}' stay what they
/// are.
const std::vector<std::string>& placeholder_names();
/// In the order in which they stand.
std::vector<std::string> placeholders_of(std::string_view word);

/// Every place filled in; one whose name is not in `values` stays.
std::vector<std::string> fill_in(const std::vector<std::string>& words,
                                 const std::map<std::string, std::string>& values);

}  // namespace motley::actors
