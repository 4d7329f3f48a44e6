#include "actors/external/environment.h"

#include <fmt/format.h>

namespace motley::actors {

ExternalInfo read_hello(ExternalAnswer answer) {
  constexpr size_t kMostName = 100;
  const auto protocol = answer.optional_number("motley");
  if (protocol != static_cast<uint64_t>(kExternalProtocol))
    answer.refuse(fmt::format("the server speaks version {} of the protocol, this motley speaks {}",
                              protocol ? std::to_string(*protocol) : "(none)", kExternalProtocol));
  ExternalInfo info;
  info.name = answer.text("name", kMostName);
  info.version = answer.optional_text("version", kMostName).value_or("");
  info.symbols = answer.texts("symbols");
  info.bytes = answer.boolean("bytes", false);
  info.interacts = answer.boolean("interacts", false);
  info.demonstrations = answer.boolean("demonstrations", false);
  info.training = answer.optional_number("training");
  info.held_out = answer.optional_number("held_out");
  if (const auto range = answer.range("reward_range")) std::tie(info.low, info.high) = *range;
  answer.done();
  if (info.symbols.empty() && !info.bytes)
    answer.refuse("neither \"symbols\" nor \"bytes\": nothing could be read or written");
  return info;
}

envs::Reward read_reward(ExternalAnswer& answer, const ExternalInfo& info) {
  envs::Reward reward;
  reward.value = answer.real("reward", info.low, info.high);
  for (auto& [name, value] : answer.numbers("parts")) reward.parts[name] = value;
  reward.format_error = answer.boolean("format_error", false);
  return reward;
}

ExternalRequest about(std::string what, const envs::Problem& problem) {
  ExternalRequest request(std::move(what));
  request.text("prompt", problem.prompt).text("answer", problem.answer);
  return request;
}

}  // namespace motley::actors
