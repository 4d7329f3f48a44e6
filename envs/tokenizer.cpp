#include "envs/tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "envs/utf8.h"

namespace motley::envs {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kSpecial{"<pad>", "<bos>", "<eos>"};

bool is_special(std::string_view symbol) {
  return std::find(kSpecial.begin(), kSpecial.end(), symbol) != kSpecial.end();
}

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument("tokenizer.json: " + reason); }

/// The character that stands for a byte in the vocabulary of a byte-level tokenizer: itself where it is printable, else
/// one from U+0100 on (bytes_to_unicode of GPT-2, https://github.com/openai/gpt-2/blob/master/src/encoder.py).
const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> all;
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      const unsigned code = printable ? byte : next++;
      if (code < 0x80) {
        all[byte] = static_cast<char>(code);
      } else {
        all[byte] = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
    return all;
  }();
  return characters;
}

std::string with_byte_characters(std::string_view symbol) {
  std::string text;
  for (const char c : symbol) text += byte_characters()[static_cast<unsigned char>(c)];
  return text;
}

/// The bytes of a vocabulary entry; nothing if a character of it stands for none.
std::optional<std::string> without_byte_characters(std::string_view text) {
  static const std::map<std::string, char, std::less<>> bytes = [] {
    std::map<std::string, char, std::less<>> all;
    for (size_t byte = 0; byte < 256; ++byte) all.emplace(byte_characters()[byte], static_cast<char>(byte));
    return all;
  }();
  std::string symbol;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_at(text, at).length;
    const auto found = bytes.find(text.substr(at, length));
    if (found == bytes.end()) return std::nullopt;
    symbol += found->second;
    at += length;
  }
  return symbol;
}

/// All symbols as alternatives, longest first: what encode does, for a leftmost-first regular expression engine.
std::string split_pattern(const std::vector<std::string>& symbols) {
  std::vector<std::string> sorted = symbols;
  std::sort(sorted.begin(), sorted.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  std::string pattern;
  for (const std::string& symbol : sorted) {
    if (!pattern.empty()) pattern += '|';
    for (const char c : symbol) {
      if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
  }
  return pattern;
}

/// Everything of the file but the vocabulary, which is in the order of the ids.
Json sections(const Tokenizer& tokenizer) {
  std::vector<std::string> special = tokenizer.markers();
  special.insert(special.end(), kSpecial.begin(), kSpecial.end());
  Json added = Json::array();
  for (size_t i = 0; i < special.size(); ++i) {
    added.push_back({{"id", tokenizer.symbols().size() + i},
                     {"content", special[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  std::vector<std::string> entries = tokenizer.symbols();
  if (tokenizer.spells_bytes()) std::transform(entries.begin(), entries.end(), entries.begin(), with_byte_characters);
  Json split{
      {"type", "Split"}, {"pattern", {{"Regex", split_pattern(entries)}}}, {"behavior", "Isolated"}, {"invert", false}};
  Json decoder{{"type", "Fuse"}};
  if (tokenizer.spells_bytes()) {
    decoder = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    split = {{"type", "Sequence"}, {"pretokenizers", {decoder, split}}};
  }
  return Json{{"version", "1.0"},          {"truncation", nullptr},
              {"padding", nullptr},        {"added_tokens", std::move(added)},
              {"normalizer", nullptr},     {"pre_tokenizer", std::move(split)},
              {"post_processor", nullptr}, {"decoder", std::move(decoder)}};
}

struct Entries {
  std::vector<std::string> symbols, markers;
};
/// Symbols and markers by id, from a vocabulary that ends with `special` special tokens.
Entries entries_of(const Json& vocabulary, bool bytes, size_t special) {
  const size_t count = vocabulary.size();
  if (count < kSpecial.size()) refuse("the vocabulary lacks <pad>, <bos>, <eos>");
  std::vector<std::optional<std::string>> by_id(count);
  for (const auto& [symbol, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= count) {
      refuse("the id of \"" + symbol + "\" must be below the size of the vocabulary, " + std::to_string(count));
    }
    auto& place = by_id[id.get<size_t>()];
    if (place) refuse("\"" + *place + "\" and \"" + symbol + "\" have the same id");
    place = symbol;
  }
  std::vector<std::string> symbols;
  for (auto& symbol : by_id) symbols.push_back(std::move(*symbol));
  if (!std::equal(kSpecial.begin(), kSpecial.end(), symbols.end() - kSpecial.size())) {
    refuse("the last three ids must be <pad>, <bos>, <eos>");
  }
  if (special < kSpecial.size() || special > count) refuse("\"added_tokens\" is not that of a symbol tokenizer");
  const auto first = symbols.end() - static_cast<std::ptrdiff_t>(special);
  std::vector<std::string> markers(first, symbols.end() - static_cast<std::ptrdiff_t>(kSpecial.size()));
  symbols.erase(first, symbols.end());
  if (bytes) {
    for (std::string& symbol : symbols) {
      auto plain = without_byte_characters(symbol);
      if (!plain) refuse("\"" + symbol + "\" has a character that stands for no byte");
      symbol = std::move(*plain);
    }
  }
  return {std::move(symbols), std::move(markers)};
}

}  // namespace

Tokenizer::Tokenizer(std::vector<std::string> symbols, bool bytes, std::vector<std::string> markers)
    : symbols_(std::move(symbols)), markers_(std::move(markers)), bytes_(bytes) {
  std::set<size_t, std::greater<>> lengths;
  const auto check = [](const std::string& text, const std::string& where, bool any_byte) {
    if (text.empty()) throw std::invalid_argument(where + " is empty");
    if (!any_byte && !is_utf8(text)) throw std::invalid_argument(where + " is not valid UTF-8");
    if (is_special(text)) throw std::invalid_argument(where + " is the name of a special token: " + text);
  };
  for (size_t id = 0; id < symbols_.size(); ++id) {
    const std::string& symbol = symbols_[id];
    const std::string where = "tokenizer symbol " + std::to_string(id);
    check(symbol, where, bytes && symbol.size() == 1);
    if (!ids_.emplace(symbol, static_cast<int32_t>(id)).second) {
      throw std::invalid_argument(where + " stands twice: \"" + symbol + "\"");
    }
    lengths.insert(symbol.size());
  }
  for (int byte = 0; bytes && byte < 256; ++byte) {
    std::string symbol(1, static_cast<char>(byte));
    if (!ids_.emplace(symbol, static_cast<int32_t>(symbols_.size())).second) continue;
    symbols_.push_back(std::move(symbol));
    lengths.insert(1);
  }
  std::set<std::string_view> names;
  for (const std::string& marker : markers_) {
    check(marker, "tokenizer marker", false);
    if (ids_.contains(marker) || !names.insert(marker).second)
      throw std::invalid_argument("tokenizer marker stands twice: \"" + marker + "\"");
  }
  lengths_.assign(lengths.begin(), lengths.end());
}

std::optional<int32_t> Tokenizer::marker(std::string_view name) const {
  for (size_t i = 0; i < kSpecial.size(); ++i)
    if (name == kSpecial[i]) return pad() + static_cast<int32_t>(i);
  for (size_t i = 0; i < markers_.size(); ++i)
    if (name == markers_[i]) return static_cast<int32_t>(symbols_.size() + i);
  return std::nullopt;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  for (size_t offset = 0; offset < text.size();) {
    size_t taken = 0;
    for (const size_t length : lengths_) {
      if (length > text.size() - offset) continue;
      const auto found = ids_.find(text.substr(offset, length));
      if (found == ids_.end()) continue;
      tokens.push_back(found->second);
      taken = length;
      break;
    }
    if (taken == 0) {
      const bool valid = character_at(text, offset).valid;
      throw std::invalid_argument((valid ? "no symbol covers " : "malformed UTF-8: ") +
                                  describe_character(text, offset) + " at byte " + std::to_string(offset));
    }
    offset += taken;
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= size()) {
      text += "\xEF\xBF\xBD";
    } else if (static_cast<size_t>(id) < symbols_.size()) {
      text += symbols_[static_cast<size_t>(id)];
    }
  }
  return text;
}

std::string Tokenizer::to_json() const {
  Json vocabulary = Json::object();
  for (const std::string& symbol : symbols_)
    vocabulary.push_back({bytes_ ? with_byte_characters(symbol) : symbol, ids_.at(symbol)});
  for (const std::string& name : markers_) vocabulary.push_back({name, *marker(name)});
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    vocabulary.push_back({std::string(kSpecial[i]), pad() + static_cast<int32_t>(i)});
  }
  Json file = sections(*this);
  // A character that no symbol covers is an error: the name of the unknown token is not in the vocabulary.
  file["model"] = Json{{"type", "WordLevel"}, {"vocab", std::move(vocabulary)}, {"unk_token", "<unk>"}};
  return file.dump(2) + "\n";
}

Tokenizer Tokenizer::from_json(std::string_view text) {
  Json file;
  try {
    file = Json::parse(text);
  } catch (const Json::exception& error) {
    refuse(std::string("not JSON: ") + error.what());
  }
  if (!file.is_object()) refuse("must be an object");
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object()) refuse("lacks the object \"model\"");
  const Json type = model->value("type", Json());
  if (type != "WordLevel") refuse("model.type is " + type.dump() + "; only \"WordLevel\" is read");
  const auto vocabulary = model->find("vocab");
  if (vocabulary == model->end() || !vocabulary->is_object()) refuse("lacks the object \"model.vocab\"");
  const auto decoder = file.find("decoder"), added = file.find("added_tokens");
  const bool bytes = decoder != file.end() && decoder->is_object() && decoder->value("type", Json()) == "ByteLevel";
  const size_t special = added != file.end() && added->is_array() ? added->size() : kSpecial.size();
  Tokenizer tokenizer = [&] {
    try {
      auto [symbols, markers] = entries_of(*vocabulary, bytes, special);
      return Tokenizer(std::move(symbols), bytes, std::move(markers));
    } catch (const std::invalid_argument& error) {
      const std::string reason = error.what();
      if (reason.starts_with("tokenizer.json: ")) throw;
      refuse(reason);
    }
  }();
  // Anything else in these sections would make text and ids mean something else than here.
  const nlohmann::json found = file, expected = sections(tokenizer);
  for (const auto& [name, wanted] : expected.items()) {
    if (name == "version") continue;
    const auto section = found.find(name);
    const nlohmann::json value = section == found.end() ? nlohmann::json() : *section;
    if (value != wanted) {
      refuse("\"" + name + "\" is not that of a symbol tokenizer: expected " + wanted.dump());
    }
  }
  return tokenizer;
}

}  // namespace motley::envs
