#include "actors/provision/command_template.h"

#include <algorithm>

namespace motley::actors {
namespace {

/// The name of the place that begins at `at`, where a brace stands; empty if it is none.
std::string_view place_at(std::string_view word, size_t at) {
  size_t end = at + 1;
  while (end < word.size() && word[end] >= 'a' && word[end] <= 'z') ++end;
  if (end == at + 1 || end == word.size() || word[end] != '}') return {};
  return word.substr(at + 1, end - at - 1);
}

std::string filled(std::string_view word, const std::map<std::string, std::string>& values) {
  std::string text;
  for (size_t at = 0; at < word.size();) {
    const std::string_view name = word[at] == '{' ? place_at(word, at) : std::string_view{};
    const auto value = values.find(std::string(name));
    if (name.empty() || value == values.end()) {
      text += word[at++];
      continue;
    }
    text += value->second;
    at += name.size() + 2;
  }
  return text;
}

}  // namespace

const std::vector<std::string>& placeholder_names() {
  static const std::vector<std::string> names{"group", "instance", "join", "key", "profile"};
  return names;
}

std::vector<std::string> placeholders_of(std::string_view word) {
  std::vector<std::string> names;
  for (size_t at = word.find('{'); at != std::string_view::npos; at = word.find('{', at + 1))
    if (const std::string_view name = place_at(word, at); !name.empty()) names.emplace_back(name);
  return names;
}

std::vector<std::string> fill_in(const std::vector<std::string>& words,
                                 const std::map<std::string, std::string>& values) {
  std::vector<std::string> all;
  for (const std::string& word : words) all.push_back(filled(word, values));
  return all;
}

}  // namespace motley::actors
