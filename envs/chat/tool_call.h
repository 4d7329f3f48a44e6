// Tool calls, parsed strictly: exactly one a reply, in the format's own form; anything else is a format error with a
// reason. Nothing that a model writes is ever mended or guessed at.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "envs/chat/template.h"

namespace motley::envs {

struct ToolCall {
  enum class Tool : uint8_t { bash, submit } tool = Tool::submit;
  std::string command{};  // of bash; not empty, without NUL
  bool operator==(const ToolCall&) const = default;
};
/// Either a call or the reason why there is none.
struct ParsedReply {
  std::optional<ToolCall> call{};
  std::string error{};
};

/// A part of a reply: a text, or a marker by its name.
struct ReplyPart {
  std::string text;
  bool marker = false;
};
/// The call in a whole reply, without its end token. Markers that the form does not have are a format error.
ParsedReply parse_call(ChatTemplate::Call form, const std::vector<ReplyPart>& reply);
/// A reply that makes this call: the form's piece, with {text} for the text that is never read as markers.
std::string call_piece(ChatTemplate::Call form);
std::string call_text(ChatTemplate::Call form, const ToolCall& call);

}  // namespace motley::envs
