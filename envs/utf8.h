// UTF-8 as the tokenizer and the tasks need it: one character at a time, with what is malformed told apart (Unicode
// 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace motley::envs {

struct Character {
  bool valid = false;
  size_t length = 1;  // bytes; 1 for a malformed byte
  char32_t code = 0;  // code point, if valid
};
/// The character that starts at `offset`, which is below text.size().
Character character_at(std::string_view text, size_t offset);
/// Offset of the first malformed byte, or text.size().
size_t first_malformed(std::string_view text);
inline bool is_utf8(std::string_view text) { return first_malformed(text) == text.size(); }
/// The code points of valid UTF-8 (malformed bytes give U+FFFD).
std::u32string code_points(std::string_view text);
/// How a message shows the character at `offset`: 'x' (U+0078), or byte 0xff.
std::string describe_character(std::string_view text, size_t offset);
/// Text from outside for a message to a person: control characters and malformed bytes become ?, what is longer is cut.
std::string printable(std::string_view text, size_t most_bytes);

}  // namespace motley::envs
