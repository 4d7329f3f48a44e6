#include "envs/chat/tool_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace motley::envs {

namespace {

using Json = nlohmann::json;

ParsedReply error(std::string reason) { return {std::nullopt, std::move(reason)}; }

ParsedReply bash(std::string command) {
  if (command.find_first_not_of(" \t\r\n") == std::string::npos) return error("the command is empty");
  if (command.find('\0') != std::string::npos) return error("the command holds a NUL character");
  return {ToolCall{ToolCall::Tool::bash, std::move(command)}, ""};
}

bool blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

/// An object that names a key twice is read differently by different parsers, so it is refused.
std::optional<Json> parse_unambiguous(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  bool twice = false;
  const Json::parser_callback_t watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) twice |= !keys.back().insert(parsed.get<std::string>()).second;
    return true;
  };
  Json value = Json::parse(text, watch, false);
  if (value.is_discarded() || twice) return std::nullopt;
  return value;
}

/// {"name": "bash", ARGUMENTS: {"command": "..."}} or {"name": "submit", ARGUMENTS: {}}, and nothing else.
ParsedReply parse_object(std::string_view text, const char* arguments) {
  const std::optional<Json> call = parse_unambiguous(text);
  if (!call) return error("the call is not valid JSON");
  const std::string keys = std::string("\"name\" and \"") + arguments + "\"";
  if (!call->is_object() || call->size() != 2 || !call->contains("name") || !call->contains(arguments))
    return error("the call must be an object of " + keys);
  const Json &name = (*call)["name"], &given = (*call)[arguments];
  if (!name.is_string() || !given.is_object())
    return error("the call's \"name\" must be text and \"" + std::string(arguments) + "\" an object");
  if (name == "submit") {
    if (!given.empty()) return error("submit takes no arguments");
    return {ToolCall{ToolCall::Tool::submit, ""}, ""};
  }
  if (name != "bash") return error("there is no such tool; there are bash and submit");
  if (given.size() != 1 || !given.contains("command") || !given["command"].is_string())
    return error("bash takes one argument, \"command\", which is text");
  return bash(given["command"].get<std::string>());
}

ParsedReply parse_command(const std::vector<ReplyPart>& reply) {
  if (reply.empty()) return error("the reply is empty");
  if (reply.size() != 1 || reply[0].marker) return error("a special token inside the reply");
  const std::string& text = reply[0].text;
  if (text == ".") return {ToolCall{ToolCall::Tool::submit, ""}, ""};
  if (!text.starts_with('$')) return error("neither $COMMAND nor .");
  return bash(text.substr(1));
}

ParsedReply parse_tagged(const std::vector<ReplyPart>& reply) {
  size_t at = 0;
  const auto is = [&](const char* name) { return at < reply.size() && reply[at].marker && reply[at].text == name; };
  const auto skip_text = [&] {
    if (at < reply.size() && !reply[at].marker) ++at;
  };
  if (at + 1 < reply.size() && !reply[at].marker && blank(reply[at].text) && reply[at + 1].text == "<think>") ++at;
  if (is("<think>")) {
    ++at;
    skip_text();
    if (!is("</think>")) return error("thinking that does not end");
    ++at;
  }
  skip_text();
  if (at == reply.size()) return error("no tool call");
  if (!is("<tool_call>")) return error("a special token outside of a tool call");
  ++at;
  if (at == reply.size() || reply[at].marker) return error("an empty tool call");
  const std::string& call = reply[at++].text;
  if (!is("</tool_call>")) return error("a tool call that does not end");
  ++at;
  if (at < reply.size() && !reply[at].marker && blank(reply[at].text)) ++at;
  if (is("<tool_call>")) return error("more than one tool call");
  if (at != reply.size()) return error("something after the tool call");
  return parse_object(call, "arguments");
}

}  // namespace

ParsedReply parse_call(ChatTemplate::Call form, const std::vector<ReplyPart>& reply) {
  switch (form) {
    case ChatTemplate::Call::command:
      return parse_command(reply);
    case ChatTemplate::Call::tagged:
      return parse_tagged(reply);
    case ChatTemplate::Call::object:
      if (reply.empty()) return error("the reply is empty");
      if (reply.size() != 1 || reply[0].marker) return error("a special token inside the reply");
      return parse_object(reply[0].text, "parameters");
  }
  return error("no such form");
}

std::string call_piece(ChatTemplate::Call form) {
  return form == ChatTemplate::Call::tagged ? "<tool_call>\n{text}\n</tool_call>" : "{text}";
}

std::string call_text(ChatTemplate::Call form, const ToolCall& call) {
  const bool bash = call.tool == ToolCall::Tool::bash;
  if (form == ChatTemplate::Call::command) return bash ? "$" + call.command : ".";
  const std::string arguments =
      bash ? "{\"command\": " + Json(call.command).dump(-1, ' ', false, Json::error_handler_t::replace) + "}" : "{}";
  return std::string("{\"name\": \"") + (bash ? "bash" : "submit") + "\", \"" +
         (form == ChatTemplate::Call::tagged ? "arguments" : "parameters") + "\": " + arguments + "}";
}

}  // namespace motley::envs
