// A TOML document as plain values with positions, so that one file alone includes the TOML library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/input_error.h"

namespace motley::app {

struct Member;

struct Node {
  enum class Kind : uint8_t { boolean, integer, number, text, array, table, other };
  Kind kind = Kind::table;
  Position at;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0.0;
  std::string text;
  std::vector<Node> items;      // array
  std::vector<Member> members;  // table, in the order of the file

  static Node text_value(std::string text, const Position& at);
  static Node empty(Kind kind, const Position& at);

  Member* find(std::string_view key);
  const Member* find(std::string_view key) const;
  void erase(std::string_view key);
  /// For messages: `the integer 3`, `the text "x"`, `a table`.
  std::string describe() const;
};

struct Member {
  std::string key;
  Position at;  // of the key
  Node value;
};

/// Throws InputError: the file cannot be read, bad syntax, a key that stands twice.
Node read_toml_file(const std::filesystem::path& file);
/// The same of a text; `source` stands in messages where a file's name would.
Node parse_toml(const std::string& text, const std::string& source);
/// One value as it may stand after `key =`; `where` is its position.
Node parse_toml_value(const std::string& text, const Position& where);

/// As TOML writes them: a basic string in quotes; the shortest number that reads back to the same double.
std::string toml_text(std::string_view text);
std::string toml_number(double value);
/// "a.b.c" in its keys.
std::vector<std::string> split_path(const std::string& path);

}  // namespace motley::app
