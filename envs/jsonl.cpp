#include "envs/jsonl.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace motley::envs {

namespace {

using Json = nlohmann::json;

Json parse(const std::string& line, const std::string& place) {
  try {
    return Json::parse(line);
  } catch (const Json::exception& error) {
    throw TaskError(place + "not JSON: " + json_reason(error.what()));
  }
}

std::string text_of(const Json& object, const char* key, bool numbers, const std::string& place) {
  const auto found = object.find(key);
  const std::string quoted = std::string("\"") + key + "\"";
  if (found == object.end()) throw TaskError(place + quoted + " is missing");
  if (numbers && found->is_number()) return found->dump();
  if (!found->is_string()) {
    const char* allowed = numbers ? " must be text or a number" : " must be text";
    throw TaskError(place + quoted + allowed + ", but is " + found->type_name());
  }
  if (found->get_ref<const std::string&>().empty()) throw TaskError(place + quoted + " is empty");
  return found->get<std::string>();
}

}  // namespace

std::string json_reason(std::string text) {
  if (const size_t bracket = text.find("] "); bracket != std::string::npos) text.erase(0, bracket + 2);
  if (const size_t line = text.find("line 1, "); line != std::string::npos) text.erase(line, 8);
  return text;
}

std::string jsonl_place(const std::string& path, uint64_t line) { return path + ":" + std::to_string(line) + ": "; }

std::vector<JsonlLine> read_jsonl(const std::string& path, bool numbers) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw TaskError(path + ": is no regular file but a folder, a pipe or a device");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw TaskError(path + ": cannot be opened");
  std::vector<JsonlLine> lines;
  std::unordered_map<std::string, size_t> first;  // line of a prompt, in `lines`
  std::string text;
  for (uint64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = jsonl_place(path, number);
    const Json object = parse(text, place);
    if (!object.is_object()) throw TaskError(place + "must be an object, but is " + object.type_name());
    JsonlLine line{text_of(object, "prompt", false, place), text_of(object, "answer", numbers, place), number};
    const auto [known, added] = first.emplace(line.prompt, lines.size());
    if (!added && lines[known->second].answer != line.answer) {
      throw TaskError(place + "the prompt of line " + std::to_string(lines[known->second].number) +
                      " with another answer");
    }
    lines.push_back(std::move(line));
  }
  if (file.bad()) throw TaskError(path + ": cannot be read");
  if (lines.empty()) throw TaskError(path + ": holds no problem");
  return lines;
}

}  // namespace motley::envs
