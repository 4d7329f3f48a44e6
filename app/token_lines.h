// JSONL files of token sequences, for commands that take given tokens or prompts.
#pragma once

#include <string>
#include <vector>

#include "app/policy.h"

namespace motley::app {

struct TokenLine {
  std::vector<int32_t> tokens;
  size_t prompt_tokens = 0;  // of {"prompt", "answer"}
  bool has_prompt = false;
};

/// sequences: {"tokens": [...]}, {"text": "..."} or {"prompt": "...", "answer": "..."}, whose end token is added, of at
/// most the model's positions. prompts: the same, but an answer is not needed and not used, and at least one position
/// is left for a response.
enum class LineUse : uint8_t { sequences, prompts };

/// One line an entry; empty lines are skipped. InputError with FILE:LINE for whatever is wrong, or if nothing is left.
std::vector<TokenLine> read_token_lines(const Policy& policy, const std::string& file, LineUse use);

}  // namespace motley::app
