#include "envs/chat/format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "envs/environment.h"

namespace motley::envs {

namespace {

constexpr std::string_view kText = "{text}";

const ChatTemplate& template_of(std::string_view name) {
  if (const ChatTemplate* found = find_chat_template(name)) return *found;
  std::string names;
  for (const ChatTemplate& each : chat_templates()) names += (names.empty() ? "" : ", ") + each.name;
  throw TaskError("no chat format " + std::string(name) + "; there are " + names);
}

}  // namespace

ChatFormat::ChatFormat(std::string_view name, const Tokenizer& tokenizer)
    : template_(&template_of(name)), tokenizer_(&tokenizer) {
  if (!tokenizer.spells_bytes())
    throw TaskError("chat format " + template_->name +
                    ": the tokenizer does not spell any bytes, as a shell may print them");
  markers_ = {{"<bos>", tokenizer.bos()}, {"<eos>", tokenizer.eos()}};
  for (const std::string& marker : template_->needed) {
    const auto id = tokenizer.marker(marker);
    if (!id) throw TaskError("chat format " + template_->name + ": the tokenizer has no token " + marker);
    markers_.emplace_back(marker, *id);
  }
  for (const std::string& marker : template_->optional)
    if (const auto id = tokenizer.marker(marker)) markers_.emplace_back(marker, *id);
}

/// Text between two markers becomes tokens as a whole, as it would if all were rendered at once.
void ChatFormat::append(Tokens& out, std::string_view piece, std::string_view text) const {
  std::string run;
  const auto flush = [&] {
    const Tokens ids = tokenizer_->encode(run);
    out.insert(out.end(), ids.begin(), ids.end());
    run.clear();
  };
  for (size_t at = 0; at < piece.size();) {
    const std::string_view rest = piece.substr(at);
    if (rest.starts_with(kText)) {
      run += text;
      at += kText.size();
      continue;
    }
    const auto marker =
        std::find_if(markers_.begin(), markers_.end(), [&](const auto& each) { return rest.starts_with(each.first); });
    if (marker == markers_.end()) {
      run += piece[at++];
      continue;
    }
    flush();
    out.push_back(marker->second);
    at += marker->first.size();
  }
  flush();
}

void ChatFormat::append_turn_end(Tokens& out, bool ended) const {
  if (!ended) out.push_back(tokenizer_->eos());
  append(out, template_->after_reply, "");
}

Tokens ChatFormat::begin(std::string_view system, std::string_view issue) const {
  Tokens out;
  append(out, template_->system, system);
  append(out, template_->user, issue);
  append(out, template_->reply, "");
  return out;
}

/// The text of an observation with at most `kept` bytes of its output: the first and the last.
std::string ChatFormat::shown(const Observation& observation, size_t kept) const {
  std::string text = observation.output;
  if (text.ends_with('\n')) text.pop_back();
  if (text.size() > kept) {
    const size_t head = (kept + 1) / 2, cut = text.size() - kept;
    const std::string note = template_->terse ? "..." : "\n[" + std::to_string(cut) + " bytes left out]\n";
    text = text.substr(0, head) + note + text.substr(text.size() - (kept - head));
  }
  const auto add = [&](const std::string& remark) {
    if (!text.empty()) text += '\n';
    text += remark;
  };
  if (observation.timed_out) add(template_->terse ? "[time]" : "[the command was stopped at its time limit]");
  if (!observation.timed_out && observation.status != 0)
    add(std::string(template_->terse ? "[" : "[exit status ") + std::to_string(observation.status) + "]");
  if (!template_->quoted_results) return text;
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Tokens ChatFormat::observe(bool ended, const Observation& observation, size_t most) const {
  const auto with = [&](size_t kept) {
    Tokens out;
    append_turn_end(out, ended);
    append(out, template_->result, shown(observation, kept));
    append(out, template_->reply, "");
    return out;
  };
  Tokens whole = with(observation.output.size());
  if (most == 0 || whole.size() <= most) return whole;
  size_t fits = 0, too_many = observation.output.size();
  Tokens best = with(0);
  while (too_many - fits > 1) {
    const size_t middle = fits + (too_many - fits) / 2;
    Tokens trial = with(middle);
    if (trial.size() <= most) {
      fits = middle;
      best = std::move(trial);
    } else {
      too_many = middle;
    }
  }
  return best;
}

Tokens ChatFormat::note_error(bool ended, std::string_view reason) const {
  Tokens out;
  append_turn_end(out, ended);
  const std::string text =
      template_->terse ? "?" : "Format error: " + std::string(reason) + ". Reply with exactly one call of a tool.";
  append(out, template_->user, text);
  append(out, template_->reply, "");
  return out;
}

ParsedReply ChatFormat::parse(std::span<const int32_t> reply) const {
  if (reply.empty() || reply.back() != tokenizer_->eos()) return {std::nullopt, "the reply was cut off"};
  std::vector<ReplyPart> parts;
  size_t start = 0;
  const auto text_until = [&](size_t end) {
    if (end > start) parts.push_back({tokenizer_->decode(reply.subspan(start, end - start)), false});
    start = end + 1;
  };
  const auto texts = static_cast<int32_t>(tokenizer_->symbols().size());
  for (size_t i = 0; i + 1 < reply.size(); ++i) {
    const int32_t id = reply[i];
    if (id >= 0 && id < texts) continue;
    const auto marker =
        std::find_if(markers_.begin(), markers_.end(), [&](const auto& each) { return each.second == id; });
    text_until(i);
    parts.push_back({marker == markers_.end() ? "" : marker->first, true});
  }
  text_until(reply.size() - 1);
  return parse_call(template_->call, parts);
}

Tokens ChatFormat::call(const ToolCall& call) const {
  Tokens out;
  append(out, call_piece(template_->call), call_text(template_->call, call));
  out.push_back(tokenizer_->eos());
  return out;
}

}  // namespace motley::envs
