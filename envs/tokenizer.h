// Character-level tokenizer built from a task's symbols. A symbol is one or more characters (running_sum's numbers 10
// to 19 are one symbol each); the longest symbol that matches is taken. With byte symbols it spells any text at all,
// malformed UTF-8 included, as what comes out of a shell may be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motley::envs {

class Tokenizer {
 public:
  Tokenizer() = default;
  /// Ids are given in the order of `symbols`; no symbol may be empty, malformed UTF-8, the name of a special token, or
  /// stand twice (std::invalid_argument). The last three ids are the special tokens <pad>, <bos>, <eos>.
  /// `bytes`: every byte that is no symbol yet becomes one, after the others. `markers` are further special tokens,
  /// such as those of a chat format; their ids follow the symbols', under the same rules.
  explicit Tokenizer(std::vector<std::string> symbols, bool bytes = false, std::vector<std::string> markers = {});
  /// Text never gives a special token. Throws std::invalid_argument naming the character (and its byte offset) that no
  /// symbol covers.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Special tokens give nothing; an id outside the vocabulary gives U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;
  int32_t size() const { return static_cast<int32_t>(symbols_.size() + markers_.size()) + 3; }
  int32_t pad() const { return size() - 3; }
  int32_t bos() const { return size() - 2; }
  int32_t eos() const { return size() - 1; }
  bool spells_bytes() const { return bytes_; }
  /// The id of a special token by its name, <pad>, <bos> and <eos> included; nothing: there is none.
  std::optional<int32_t> marker(std::string_view name) const;
  const std::vector<std::string>& symbols() const { return symbols_; }
  const std::vector<std::string>& markers() const { return markers_; }
  bool operator==(const Tokenizer&) const = default;

  /// tokenizer.json in the Hugging Face format (WordLevel model; byte symbols as in GPT-2's byte-level tokenizers).
  /// Load refuses other kinds with the reason.
  std::string to_json() const;
  static Tokenizer from_json(std::string_view text);

 private:
  std::vector<std::string> symbols_, markers_;
  bool bytes_ = false;
  std::map<std::string, int32_t, std::less<>> ids_;  // of symbols_
  std::vector<size_t> lengths_;                      // that symbols have, in bytes, longest first
};

}  // namespace motley::envs
