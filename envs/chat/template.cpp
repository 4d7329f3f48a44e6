#include "envs/chat/template.h"

#include <algorithm>

namespace motley::envs {

namespace {

const std::string kBash =
    R"({"type": "function", "function": {"name": "bash", "description": "Runs a command in a shell that lasts over the whole conversation, in the work tree.", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}})";
const std::string kSubmit =
    R"({"type": "function", "function": {"name": "submit", "description": "Ends the work: the tree as it stands is tested.", "parameters": {"type": "object", "properties": {}}}})";

/// As in the chat_template of Qwen2.5 and Qwen3 (tokenizer_config.json of Qwen/Qwen2.5-7B-Instruct), with one call a
/// reply instead of any number.
ChatTemplate chatml() {
  return {
      .name = "chatml",
      .summary = "ChatML with tool calls in tags, as Qwen has it",
      .needed = {"<|im_start|>", "<tool_call>", "</tool_call>"},
      .optional = {"<tool_response>", "</tool_response>", "<think>", "</think>"},
      .system =
          "<|im_start|>system\n{text}\n\n# Tools\n\nYou may call one function a reply to assist with the user query."
          "\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n" +
          kBash + "\n" + kSubmit +
          "\n</tools>\n\nFor a function call, return a json object with function name and arguments within "
          "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
          "<args-json-object>}\n</tool_call><eos>\n",
      .user = "<|im_start|>user\n{text}<eos>\n",
      .reply = "<|im_start|>assistant\n",
      .after_reply = "\n",
      .result = "<|im_start|>user\n<tool_response>\n{text}\n</tool_response><eos>\n",
      .call = ChatTemplate::Call::tagged};
}

/// As in the chat_template of meta-llama/Llama-3.1-8B-Instruct, with the tools in the system text and without its
/// dates, which would make a prompt depend on the day.
ChatTemplate llama3() {
  return {.name = "llama3",
          .summary = "Llama 3 with tool calls as bare JSON, results by the role ipython",
          .needed = {"<|start_header_id|>", "<|end_header_id|>"},
          .optional = {},
          .system =
              "<bos><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\n\n{text}\n\nYou have access to "
              "the following functions. To call a function, please respond with JSON for a function call. Respond in "
              "the format {\"name\": function name, \"parameters\": dictionary of argument name and its value}. Do not "
              "use variables.\n\n" +
              kBash + "\n\n" + kSubmit + "\n\n<eos>",
          .user = "<|start_header_id|>user<|end_header_id|>\n\n{text}<eos>",
          .reply = "<|start_header_id|>assistant<|end_header_id|>\n\n",
          .after_reply = "",
          .result = "<|start_header_id|>ipython<|end_header_id|>\n\n{text}<eos>",
          .quoted_results = true,
          .call = ChatTemplate::Call::object};
}

ChatTemplate compact() {
  return {.name = "compact",
          .summary = "as few tokens as can be, for small models: $COMMAND or .",
          .needed = {},
          .optional = {},
          .system = "",
          .user = "{text}",
          .reply = "<bos>",
          .after_reply = "",
          .result = "{text}",
          .call = ChatTemplate::Call::command,
          .terse = true};
}

}  // namespace

const std::vector<ChatTemplate>& chat_templates() {
  static const std::vector<ChatTemplate> all{chatml(), compact(), llama3()};
  return all;
}

const ChatTemplate* find_chat_template(std::string_view name) {
  const auto& all = chat_templates();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ChatTemplate& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace motley::envs
