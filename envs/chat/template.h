// The chat formats by name, as data: what stands around the texts of a conversation, and what a tool call looks like.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace motley::envs {

/// In the pieces, {text} is where a text goes, <bos> and <eos> are the tokenizer's own, and a marker's name stands for
/// its token. <eos> ends a reply: where a model's tokenizer names it <|im_end|> or <|eot_id|>, it is that one.
struct ChatTemplate {
  /// How a reply calls a tool (docs/chat.md has the grammars).
  enum class Call : uint8_t { command, tagged, object };
  std::string name, summary;
  std::vector<std::string> needed;    // markers without which there is no format
  std::vector<std::string> optional;  // markers that are spelled as text where the tokenizer lacks them
  std::string system;                 // once, at the beginning; empty: the format has no system text
  std::string user;                   // the issue, and notes on format errors
  std::string reply;                  // opens a reply
  std::string after_reply;            // between a reply's <eos> and what follows
  std::string result;                 // of a tool
  bool quoted_results = false;        // as a JSON text
  Call call = Call::command;
  bool terse = false;  // notes and exit statuses in as few tokens as can be
};

/// All of them, by name.
const std::vector<ChatTemplate>& chat_templates();
const ChatTemplate* find_chat_template(std::string_view name);

}  // namespace motley::envs
