#include "envs/tokenizer.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "envs/utf8.h"

using Catch::Matchers::Contains;
using motley::envs::Tokenizer;
using Ids = std::vector<int32_t>;

namespace {

/// Every replacement for one place of a valid tokenizer.json must be refused.
std::string edited(const std::function<void(nlohmann::ordered_json&)>& edit) {
  auto file = nlohmann::ordered_json::parse(Tokenizer({"0", "1", "10", "="}).to_json());
  edit(file);
  return file.dump();
}

}  // namespace

TEST_CASE("a tokenizer takes the longest symbol and gives the text back") {
  const Tokenizer tokenizer({"1", "10", "100", "0", "="});
  CHECK(tokenizer.size() == 8);
  CHECK(tokenizer.encode("100=") == Ids{2, 4});
  CHECK(tokenizer.encode("1010") == Ids{1, 1});
  CHECK(tokenizer.encode("110001") == Ids{0, 2, 3, 0});
  CHECK(tokenizer.encode("") == Ids{});
  CHECK(tokenizer.decode(tokenizer.encode("110001=")) == "110001=");
}

TEST_CASE("special tokens are the last three ids, give no text and come from no text") {
  const Tokenizer tokenizer({"<", "p", "a", "d", ">"});
  CHECK(tokenizer.pad() == 5);
  CHECK(tokenizer.bos() == 6);
  CHECK(tokenizer.eos() == 7);
  CHECK(tokenizer.encode("<pad>") == Ids{0, 1, 2, 3, 4});
  CHECK(tokenizer.decode(Ids{6, 2, 7, 5}) == "a");
}

TEST_CASE("an id outside the vocabulary decodes to U+FFFD") {
  const Tokenizer tokenizer({"a"});
  CHECK(tokenizer.decode(Ids{-1, 0, 4, INT32_MAX, INT32_MIN}) == "\uFFFDa\uFFFD\uFFFD\uFFFD");
  CHECK(Tokenizer().size() == 3);
  CHECK(Tokenizer().decode(Ids{0, 1, 2, 3}) == "\uFFFD");
}

TEST_CASE("symbols of several bytes are kept whole") {
  const Tokenizer tokenizer({"é", "日", "日本", "😀", "e"});
  CHECK(tokenizer.encode("日本日e😀é") == Ids{2, 1, 4, 3, 0});
  CHECK_THROWS_WITH(tokenizer.encode("日é本"), "no symbol covers '本' (U+672C) at byte 5");
}

TEST_CASE("what cannot be encoded is named with its byte offset") {
  const Tokenizer tokenizer({"a", "é"});
  CHECK_THROWS_AS(tokenizer.encode("b"), std::invalid_argument);
  CHECK_THROWS_WITH(tokenizer.encode("aéz"), "no symbol covers 'z' (U+007A) at byte 3");
  CHECK_THROWS_WITH(tokenizer.encode("a\n"), "no symbol covers U+000A at byte 1");
  CHECK_THROWS_WITH(tokenizer.encode("a\xff"), "malformed UTF-8: byte 0xff at byte 1");
  CHECK_THROWS_WITH(tokenizer.encode("aa\xc3"), "malformed UTF-8: byte 0xc3 at byte 2");
  CHECK_THROWS_WITH(Tokenizer().encode("a"), Contains("at byte 0"));
}

TEST_CASE("UTF-8 is read as Unicode defines it") {
  using motley::envs::is_utf8;
  CHECK(is_utf8(""));
  CHECK(is_utf8("\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"));
  const auto malformed = {"\x80",
                          "\xc0\x80",
                          "\xc1\xbf",
                          "\xe0\x9f\xbf",
                          "\xed\xa0\x80",
                          "\xed\xbf\xbf",
                          "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80",
                          "\xe6\x97",
                          "\xe6\x97z",
                          "\xff"};
  for (const char* text : malformed) CHECK_FALSE(is_utf8(text));
  CHECK(motley::envs::code_points("a\xff日") == U"a\uFFFD日");
}

TEST_CASE("symbols that cannot be told apart are refused") {
  CHECK_THROWS_WITH(Tokenizer({"a", ""}), "tokenizer symbol 1 is empty");
  CHECK_THROWS_WITH(Tokenizer({"a", "b", "a"}), Contains("symbol 2 stands twice: \"a\""));
  CHECK_THROWS_WITH(Tokenizer({"\xff"}), Contains("symbol 0 is not valid UTF-8"));
  CHECK_THROWS_WITH(Tokenizer({"<eos>"}), Contains("special token: <eos>"));
}

TEST_CASE("tokenizer.json comes back equal") {
  const std::vector<std::vector<std::string>> sets{
      {},
      {"a"},
      {"0", "1", "10", "="},
      {"\\", "\"", "|", "(", ")", "[", "]", "{", "}", ".", "*", "+", "?", "^", "$", "\n"},
      {"é", "日本", "日", "😀", std::string("\0", 1)}};
  for (const auto& symbols : sets) {
    const Tokenizer tokenizer(symbols);
    const Tokenizer loaded = Tokenizer::from_json(tokenizer.to_json());
    CHECK(loaded == tokenizer);
    CHECK(loaded.symbols() == symbols);
    CHECK(loaded.to_json() == tokenizer.to_json());
  }
}

TEST_CASE("byte symbols spell any text, and the longest symbol is still taken") {
  const Tokenizer tokenizer({"sed -i", "é", "s", " "}, true);
  CHECK(tokenizer.spells_bytes());
  CHECK(tokenizer.size() == 4 + 254 + 3);
  CHECK(tokenizer.encode("sed -i s") == Ids{0, 3, 2});
  CHECK(tokenizer.encode("é") == Ids{1});
  CHECK(tokenizer.encode("ê").size() == 2);
  std::string all;
  for (int i = 0; i < 256; ++i) (all += static_cast<char>(i)) += "sed -ié";
  CHECK(tokenizer.decode(tokenizer.encode(all)) == all);
  CHECK(tokenizer.encode("\xff\xc3") == Ids{tokenizer.encode("\xff")[0], tokenizer.encode("\xc3")[0]});
  const std::string json = tokenizer.to_json();
  const Tokenizer loaded = Tokenizer::from_json(json);
  CHECK(loaded == tokenizer);
  CHECK(loaded.encode(all) == tokenizer.encode(all));
  CHECK(loaded.to_json() == json);
  CHECK_THROWS_WITH(Tokenizer({"\xff\xff"}, true), Contains("not valid UTF-8"));
  // GPT-2's names of bytes: a blank is U+0120, a line feed U+010A, 0xff itself.
  const auto vocabulary = nlohmann::json::parse(json)["model"]["vocab"];
  CHECK(vocabulary["sed\u0120-i"] == 0);
  CHECK(vocabulary["\u010a"] == tokenizer.encode("\n")[0]);
  CHECK(vocabulary["\u00ff"] == tokenizer.encode("\xff")[0]);
  CHECK(vocabulary["\u0143"] == tokenizer.encode("\xad")[0]);
}

TEST_CASE("markers are special tokens by name: text never gives one, and they give no text") {
  const Tokenizer tokenizer({"<", "a", ">", "|"}, false, {"<|a|>", "<|b|>"});
  CHECK(tokenizer.marker("<|a|>") == 4);
  CHECK(tokenizer.marker("<|b|>") == 5);
  CHECK(tokenizer.marker("<eos>") == 8);
  CHECK(tokenizer.marker("<|c|>") == std::nullopt);
  CHECK(tokenizer.marker("a") == std::nullopt);
  CHECK(tokenizer.encode("<|a|>") == Ids{0, 3, 1, 3, 2});
  CHECK(tokenizer.decode(Ids{4, 1, 5, 6, 9}) == "a\uFFFD");
  const Tokenizer loaded = Tokenizer::from_json(tokenizer.to_json());
  CHECK(loaded == tokenizer);
  CHECK(loaded.markers() == tokenizer.markers());
  CHECK_THROWS_WITH(Tokenizer({"a"}, false, {"a"}), Contains("marker stands twice"));
  CHECK_THROWS_WITH(Tokenizer({"a"}, false, {"b", "b"}), Contains("marker stands twice"));
  CHECK_THROWS_WITH(Tokenizer({"a"}, false, {""}), Contains("marker is empty"));
  CHECK_THROWS_WITH(Tokenizer({"a"}, false, {"<pad>"}), Contains("special token"));
  const Tokenizer both({"a"}, true, {"<|a|>"});
  CHECK(Tokenizer::from_json(both.to_json()) == both);
}

TEST_CASE("tokenizer.json has the Hugging Face form") {
  const auto file = nlohmann::json::parse(Tokenizer({"1", "+", "10"}).to_json());
  CHECK(file["model"]["type"] == "WordLevel");
  CHECK(file["model"]["vocab"] ==
        nlohmann::json{{"1", 0}, {"+", 1}, {"10", 2}, {"<pad>", 3}, {"<bos>", 4}, {"<eos>", 5}});
  CHECK(file["pre_tokenizer"]["pattern"]["Regex"] == "10|\\+|1");
  REQUIRE(file["added_tokens"].size() == 3);
  CHECK(file["added_tokens"][2]["content"] == "<eos>");
  CHECK(file["added_tokens"][2]["id"] == 5);
}

TEST_CASE("a tokenizer.json of another kind or damaged is refused with the reason") {
  const auto refused = [](const std::string& text, const std::string& reason) {
    CAPTURE(text);
    CHECK_THROWS_AS(Tokenizer::from_json(text), std::invalid_argument);
    CHECK_THROWS_WITH(Tokenizer::from_json(text), Contains(reason));
  };
  const std::string good = Tokenizer({"0", "1", "10", "="}).to_json();
  refused("", "not JSON");
  refused("[1, 2]", "must be an object");
  refused("{}", "lacks the object \"model\"");
  refused("\xff", "not JSON");
  refused(std::string(100000, '['), "not JSON");
  for (size_t cut = 1; cut + 2 < good.size(); cut += 7) refused(good.substr(0, cut), "not JSON");
  refused(edited([](auto& f) { f["model"]["type"] = "BPE"; }), "model.type is \"BPE\"");
  refused(edited([](auto& f) { f["model"]["type"] = 3; }), "model.type is 3");
  refused(edited([](auto& f) { f["model"].erase("vocab"); }), "model.vocab");
  refused(edited([](auto& f) { f["model"]["vocab"] = {1, 2}; }), "model.vocab");
  refused(edited([](auto& f) { f["model"]["vocab"]["0"] = -1; }), "id of \"0\"");
  refused(edited([](auto& f) { f["model"]["vocab"]["0"] = 7; }), "below the size of the vocabulary, 7");
  refused(edited([](auto& f) { f["model"]["vocab"]["0"] = 1.5; }), "id of \"0\"");
  refused(edited([](auto& f) { f["model"]["vocab"]["0"] = 1; }), "the same id");
  refused(edited([](auto& f) { f["model"]["vocab"].erase("="); }), "below the size");
  refused(edited([](auto& f) { std::swap(f["model"]["vocab"]["0"], f["model"]["vocab"]["<eos>"]); }), "last three ids");
  refused(edited([](auto& f) { f["model"]["vocab"] = nlohmann::ordered_json::object(); }), "lacks <pad>");
  refused(edited([](auto& f) {
            f["model"]["vocab"].erase("0");
            f["model"]["vocab"][""] = 0;
          }),
          "is empty");
  refused(edited([](auto& f) { f["pre_tokenizer"]["pattern"]["Regex"] = "0|1|10|="; }), "pre_tokenizer");
  refused(edited([](auto& f) { f["normalizer"] = {{"type", "NFC"}}; }), "normalizer");
  refused(edited([](auto& f) { f.erase("decoder"); }), "decoder");
  refused(edited([](auto& f) { f["added_tokens"].erase(1); }), "added_tokens");
  refused(edited([](auto& f) { f["added_tokens"].push_back(f["added_tokens"][0]); }), "added_tokens");
  refused(edited([](auto& f) { f["added_tokens"] = std::vector<int>(100); }), "added_tokens");
  refused(edited([](auto& f) { f["decoder"] = {{"type", "ByteLevel"}}; }), "");
}

TEST_CASE("text from outside is shown without control characters, and cut") {
  CHECK(motley::envs::printable("a\x1b[31m\n\xff\xc2\x9b z\xc3\xa4", 100) == "a?[31m??? z\xc3\xa4");
  CHECK(motley::envs::printable("abcd", 3) == "abc...");
  CHECK(motley::envs::printable("ab\xc3\xa4", 3) == "ab...");
  CHECK(motley::envs::printable("", 0).empty());
}
