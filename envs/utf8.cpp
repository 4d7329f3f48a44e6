#include "envs/utf8.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace motley::envs {

namespace {

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

}  // namespace

Character character_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {true, 1, lead};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - offset < length) return {};
  char32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<char32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[length] || surrogate || code > 0x10FFFF) return {};
  return {true, length, code};
}

size_t first_malformed(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Character character = character_at(text, offset);
    if (!character.valid) break;
    offset += character.length;
  }
  return offset;
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (size_t offset = 0; offset < text.size();) {
    const Character character = character_at(text, offset);
    points.push_back(character.valid ? character.code : U'\uFFFD');
    offset += character.length;
  }
  return points;
}

std::string describe_character(std::string_view text, size_t offset) {
  const Character character = character_at(text, offset);
  std::array<char, 16> code{};
  if (!character.valid) {
    std::snprintf(code.data(), code.size(), "byte 0x%02x", static_cast<uint8_t>(text[offset]));
    return code.data();
  }
  std::snprintf(code.data(), code.size(), "U+%04X", static_cast<unsigned>(character.code));
  if (is_control(character.code)) return code.data();
  return "'" + std::string(text.substr(offset, character.length)) + "' (" + code.data() + ")";
}

std::string printable(std::string_view text, size_t most_bytes) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const bool plain = character.valid && !is_control(character.code);
    const std::string_view piece = plain ? text.substr(at, character.length) : "?";
    if (out.size() + piece.size() > most_bytes) return out + "...";
    out += piece;
    at += character.length;
  }
  return out;
}

}  // namespace motley::envs
