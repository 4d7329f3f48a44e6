// Files of {"prompt": ..., "answer": ...}, one JSON object a line: the jsonl task and the pairs of a warm start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "envs/environment.h"

namespace motley::envs {

struct JsonlLine {
  std::string prompt, answer;
  uint64_t number = 0;  // of the line, from 1
};
/// "FILE:LINE: ", how every message about a line begins.
std::string jsonl_place(const std::string& path, uint64_t line);
/// What the JSON parser's exception says, without its own name and without its count of lines where there is one.
std::string json_reason(std::string text);
/// Reads a file; blank lines are skipped, further keys ignored. Throws TaskError naming file and line: not JSON, no
/// object, a key missing, not text, empty, or one prompt with two answers. `numbers`: an answer may be a JSON number.
std::vector<JsonlLine> read_jsonl(const std::string& path, bool numbers = false);

}  // namespace motley::envs
