#include "app/document.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

namespace motley::app {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // of a file

Position position(const toml::source_region& region, const std::string& source) {
  return {source, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

bool earlier(const Member& a, const Member& b) {
  return a.at.line != b.at.line ? a.at.line < b.at.line : a.at.column < b.at.column;
}

Node convert(const toml::node& from, const std::string& source) {
  Node node;
  node.at = position(from.source(), source);
  if (const auto* table = from.as_table()) {
    node.kind = Node::Kind::table;
    for (const auto& [key, value] : *table) {
      node.members.push_back({std::string(key.str()), position(key.source(), source), convert(value, source)});
    }
    std::sort(node.members.begin(), node.members.end(), earlier);
  } else if (const auto* array = from.as_array()) {
    node.kind = Node::Kind::array;
    for (const auto& item : *array) node.items.push_back(convert(item, source));
  } else if (const auto* text = from.as_string()) {
    node.kind = Node::Kind::text;
    node.text = text->get();
  } else if (const auto* integer = from.as_integer()) {
    node.kind = Node::Kind::integer;
    node.integer = integer->get();
  } else if (const auto* number = from.as_floating_point()) {
    node.kind = Node::Kind::number;
    node.number = number->get();
  } else if (const auto* boolean = from.as_boolean()) {
    node.kind = Node::Kind::boolean;
    node.boolean = boolean->get();
  } else {
    node.kind = Node::Kind::other;
  }
  return node;
}

/// The parser reports a key that stands twice at the end of its value: the key itself starts its line.
Position problem_position(const toml::parse_error& error, const std::string& text, const std::string& source) {
  Position at = position(error.source(), source);
  if (error.description().find("cannot redefine") == std::string_view::npos) return at;
  std::istringstream lines(text);
  std::string line;
  for (int number = 0; number < at.line; ++number) std::getline(lines, line);
  const size_t start = line.find_first_not_of(" \t");
  if (start != std::string::npos) at.column = static_cast<int>(start) + 1;
  return at;
}

/// The position behind the string that starts at `at`.
size_t string_end(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string mark(text.substr(at, 3) == std::string(3, quote) ? 3 : 1, quote);
  for (size_t i = at + mark.size(); i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text.substr(i, mark.size()) == mark) {
      size_t end = i + mark.size();
      if (mark.size() == 3) {  // one or two quotes may stand before the closing three
        for (int further = 0; further < 2 && end < text.size() && text[end] == quote; ++further) ++end;
      }
      return end;
    } else if (mark.size() == 1 && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

/// A dotted key nests a table per dot without a limit of the parser's, and the stack ends before the memory does.
void refuse_deep_keys(std::string_view text, const std::string& source) {
  constexpr int kMostDots = 8;  // the deepest key of the schema has 2
  Position at{source, 1, 0};
  size_t line_start = 0;
  int dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' || text[i] == '\'') {
      const size_t end = string_end(text, i);
      at.line += static_cast<int>(std::count(text.begin() + i, text.begin() + end, '\n'));
      i = end - 1;
    } else if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (text[i] == '.' && ++dots > kMostDots) {
      at.column = static_cast<int>(i - line_start) + 1;
      throw InputError(at, "a key of more than " + std::to_string(kMostDots) + " dots",
                       "allowed: the keys of docs/experiment.md");
    } else if (std::string_view("=,{}[]\n").find(text[i]) != std::string_view::npos) {
      dots = 0;
    }
    if (i < text.size() && text[i] == '\n') {
      ++at.line;
      line_start = i + 1;
    }
  }
}

std::string read_text(const std::filesystem::path& file) {
  const Position where{file.string()};
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw InputError(where, "is a folder", "a TOML file is wanted");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw InputError(where, std::string("cannot be read: ") + std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');  // a device may never end
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMostBytes) throw InputError(where, "is larger than 1 MiB", "no experiment is");
  return text;
}

}  // namespace

Node Node::text_value(std::string text, const Position& at) {
  Node node = empty(Kind::text, at);
  node.text = std::move(text);
  return node;
}
Node Node::empty(Kind kind, const Position& at) {
  Node node;
  node.kind = kind;
  node.at = at;
  return node;
}

Member* Node::find(std::string_view key) {
  for (Member& member : members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}
const Member* Node::find(std::string_view key) const { return const_cast<Node*>(this)->find(key); }

void Node::erase(std::string_view key) {
  std::erase_if(members, [&](const Member& member) { return member.key == key; });
}

std::string Node::describe() const {
  switch (kind) {
    case Kind::boolean:
      return boolean ? "the boolean true" : "the boolean false";
    case Kind::integer:
      return fmt::format("the integer {}", integer);
    case Kind::number:
      return "the number " + toml_number(number);
    case Kind::text:
      return "the text " + toml_text(text);
    case Kind::array:
      return "a list";
    case Kind::table:
      return "a table";
    case Kind::other:
      return "a date or time";
  }
  return "";
}

Node read_toml_file(const std::filesystem::path& file) { return parse_toml(read_text(file), file.string()); }

Node parse_toml(const std::string& text, const std::string& source) {
  refuse_deep_keys(text, source);
  try {
    return convert(toml::parse(text, source), source);
  } catch (const toml::parse_error& error) {
    throw InputError(problem_position(error, text, source), std::string(error.description()));
  }
}

Node parse_toml_value(const std::string& text, const Position& where) {
  if (text.find_first_not_of(" \t") == std::string::npos) throw InputError(where, "there is no value after '='");
  if (text.find_first_of("\r\n") != std::string::npos) throw InputError(where, "the value holds a line break");
  refuse_deep_keys(text, where.source);
  try {
    const toml::table table = toml::parse("value = " + text);
    Node node = convert(*table.get("value"), where.source);
    const auto place = [&](const auto& self, Node& at) -> void {
      at.at = where;
      for (Node& item : at.items) self(self, item);
      for (Member& member : at.members) {
        member.at = where;
        self(self, member.value);
      }
    };
    place(place, node);
    return node;
  } catch (const toml::parse_error& error) {
    throw InputError(where, "the value is no TOML: " + std::string(error.description()));
  }
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        else
          out += c;
    }
  }
  return out + "\"";
}

std::string toml_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts{""};
  for (const char c : path) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

}  // namespace motley::app
