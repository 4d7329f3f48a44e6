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
  Json added = Json::array();
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    added.push_back({{"id", tokenizer.pad() + static_cast<int32_t>(i)},
                     {"content", kSpecial[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json split{{"type", "Split"},
             {"pattern", {{"Regex", split_pattern(tokenizer.symbols())}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  return Json{{"version", "1.0"},          {"truncation", nullptr},
              {"padding", nullptr},        {"added_tokens", std::move(added)},
              {"normalizer", nullptr},     {"pre_tokenizer", std::move(split)},
              {"post_processor", nullptr}, {"decoder", {{"type", "Fuse"}}}};
}

/// The symbols by id, from a vocabulary that ends with the special tokens.
std::vector<std::string> symbols_of(const Json& vocabulary) {
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
  symbols.resize(count - kSpecial.size());
  return symbols;
}

}  // namespace

Tokenizer::Tokenizer(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  std::set<size_t, std::greater<>> lengths;
  for (size_t id = 0; id < symbols_.size(); ++id) {
    const std::string& symbol = symbols_[id];
    const std::string where = "tokenizer symbol " + std::to_string(id);
    if (symbol.empty()) throw std::invalid_argument(where + " is empty");
    if (!is_utf8(symbol)) throw std::invalid_argument(where + " is not valid UTF-8");
    if (is_special(symbol)) throw std::invalid_argument(where + " is the name of a special token: " + symbol);
    if (!ids_.emplace(symbol, static_cast<int32_t>(id)).second) {
      throw std::invalid_argument(where + " stands twice: \"" + symbol + "\"");
    }
    lengths.insert(symbol.size());
  }
  lengths_.assign(lengths.begin(), lengths.end());
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
    } else if (id < pad()) {
      text += symbols_[static_cast<size_t>(id)];
    }
  }
  return text;
}

std::string Tokenizer::to_json() const {
  Json vocabulary = Json::object();
  for (const std::string& symbol : symbols_) vocabulary.push_back({symbol, ids_.at(symbol)});
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
  Tokenizer tokenizer = [&] {
    try {
      return Tokenizer(symbols_of(*vocabulary));
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
