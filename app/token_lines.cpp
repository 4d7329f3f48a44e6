#include "app/token_lines.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/input_error.h"

namespace motley::app {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& file, int number, const std::string& why) {
  throw InputError({file + ":" + std::to_string(number)}, why,
                   R"(a line is {"tokens": [...]}, {"text": "..."} or {"prompt": "...", "answer": "..."})");
}

std::vector<int32_t> token_ids(const json& value, int64_t vocabulary) {
  if (!value.is_array()) throw std::invalid_argument("\"tokens\" is no list");
  std::vector<int32_t> ids;
  for (const json& item : value) {
    if (!item.is_number_integer())
      throw std::invalid_argument("\"tokens\" holds " + item.dump() + ", which is no integer");
    const int64_t id = item.is_number_unsigned() && item.get<uint64_t>() > INT32_MAX ? INT32_MAX : item.get<int64_t>();
    if (id < 0 || id >= vocabulary) {
      throw std::invalid_argument("token " + item.dump() + " is outside the vocabulary of " +
                                  std::to_string(vocabulary));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<int32_t> encoded(const Policy& policy, const json& object, const char* key) {
  if (!object.at(key).is_string()) throw std::invalid_argument(std::string("\"") + key + "\" is no text");
  return policy.need_tokenizer().encode(object.at(key).get<std::string>());
}

TokenLine read_object(const Policy& policy, const json& object, LineUse use) {
  if (!object.is_object()) throw std::invalid_argument("no JSON object");
  TokenLine line;
  const size_t kinds = object.contains("tokens") + object.contains("text") + object.contains("prompt");
  if (kinds != 1) throw std::invalid_argument("neither tokens, text nor prompt, or several of them");
  for (const auto& [key, value] : object.items()) {
    const bool answer = key == "answer" && object.contains("prompt");
    if (key != "tokens" && key != "text" && key != "prompt" && !answer) {
      throw std::invalid_argument("unknown key \"" + key + "\"");
    }
  }
  if (object.contains("tokens"))
    line.tokens = token_ids(object.at("tokens"), policy.config.vocabulary);
  else if (object.contains("text"))
    line.tokens = encoded(policy, object, "text");
  else if (use == LineUse::prompts)
    line.tokens = encoded(policy, object, "prompt");
  else {
    if (!object.contains("answer")) throw std::invalid_argument("a prompt without \"answer\"");
    line.tokens = encoded(policy, object, "prompt");
    line.has_prompt = true;
    line.prompt_tokens = line.tokens.size();
    const std::vector<int32_t> answer = encoded(policy, object, "answer");
    line.tokens.insert(line.tokens.end(), answer.begin(), answer.end());
    line.tokens.push_back(policy.need_tokenizer().eos());
  }
  if (line.tokens.empty()) throw std::invalid_argument("no tokens");
  const int64_t room = policy.config.max_positions - (use == LineUse::prompts ? 1 : 0);
  if (static_cast<int64_t>(line.tokens.size()) > room) {
    throw std::invalid_argument(std::to_string(line.tokens.size()) + " tokens, but the model has " +
                                std::to_string(policy.config.max_positions) + " positions" +
                                (use == LineUse::prompts ? ", of which a response needs one" : ""));
  }
  return line;
}

}  // namespace

std::vector<TokenLine> read_token_lines(const Policy& policy, const std::string& file, LineUse use) {
  std::ifstream in(file);
  if (!in) throw InputError({file}, "cannot be read");
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw InputError({file}, "is a folder", "a JSONL file is wanted");
  std::vector<TokenLine> lines;
  int number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      lines.push_back(read_object(policy, json::parse(text), use));
    } catch (const json::exception&) {
      refuse(file, number, "no JSON");
    } catch (const std::invalid_argument& error) {
      refuse(file, number, error.what());
    }
  }
  if (lines.empty()) throw InputError({file}, "holds no line of tokens");
  return lines;
}

}  // namespace motley::app
