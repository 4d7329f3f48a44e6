// What an external environment says of itself and of its episodes, read from its answers.
#pragma once

#include <memory>

#include "actors/external/client.h"
#include "envs/environment.h"

namespace motley::actors {

inline constexpr size_t kMostTextBytes = 1 << 18;  // a prompt, an observation, a demonstration

/// What `hello` says.
struct ExternalInfo {
  std::string name, version;
  std::vector<std::string> symbols;
  bool bytes = false, interacts = false, demonstrations = false;
  std::optional<uint64_t> training, held_out;  // problems; nothing: endless
  double low = 0, high = 1;                    // rewards
};
/// Throws ExternalError.
ExternalInfo read_hello(ExternalAnswer answer);

/// Reward, parts and format_error of an answer, the reward in the range that hello has named.
envs::Reward read_reward(ExternalAnswer& answer, const ExternalInfo& info);

/// The problem's texts, which the server gets back as it gave them.
ExternalRequest about(std::string what, const envs::Problem& problem);

}  // namespace motley::actors
