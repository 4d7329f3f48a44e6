// A chat format on a tokenizer: texts to tokens and replies to tool calls. Token in, token out: a conversation only
// ever grows by tokens, sampled ones stay as they were drawn, and a reply's thinking stays where it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envs/chat/template.h"
#include "envs/chat/tool_call.h"
#include "envs/tokenizer.h"

namespace motley::envs {

using Tokens = std::vector<int32_t>;

/// What a command came to, as the model is told. Nothing of it depends on a clock.
struct Observation {
  std::string output{};  // any bytes
  int status = 0;        // exit status
  bool timed_out = false;
};

class ChatFormat {
 public:
  /// Throws TaskError: no format of that name (the message lists them), or a tokenizer that lacks a marker or cannot
  /// spell any bytes. The tokenizer must outlive the format.
  ChatFormat(std::string_view name, const Tokenizer& tokenizer);

  /// The beginning: system text (left out where the format has none), the issue, and the opening of a reply.
  Tokens begin(std::string_view system, std::string_view issue) const;
  /// What is read between one reply and the next: the reply's end token if it was cut off before it, what separates
  /// turns, a result of at most `most` tokens in all (0: any number), and the opening of the next reply. What is too
  /// long is cut in its middle, with a note. A `most` that leaves no room for the note gives as little as there can be.
  Tokens observe(bool ended, const Observation& observation, size_t most = 0) const;
  /// The same for a reply that made no call: the reason, and what is wanted.
  Tokens note_error(bool ended, std::string_view reason) const;

  /// The call of a reply, with its end token: strictly from its tokens. An id that the tokenizer does not have, a
  /// special token and a missing end are format errors.
  ParsedReply parse(std::span<const int32_t> reply) const;
  /// The reply that makes this call, with its end token: for demonstrations.
  Tokens call(const ToolCall& call) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate& form() const { return *template_; }

 private:
  void append(Tokens& out, std::string_view piece, std::string_view text) const;
  void append_turn_end(Tokens& out, bool ended) const;
  std::string shown(const Observation& observation, size_t kept) const;

  const ChatTemplate* template_;
  const Tokenizer* tokenizer_;
  std::vector<std::pair<std::string, int32_t>> markers_;  // by name
};

}  // namespace motley::envs
