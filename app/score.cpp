// motley score: teacher forcing. Entry i of "log_probs" belongs to token i; the first token has none.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/devices.h"
#include "app/token_lines.h"

namespace motley::app {

int score_command(const ScoreArguments& arguments) {
  const Policy policy = open_policy(arguments.model, arguments.profile, device_argument(arguments.device));
  const std::vector<TokenLine> lines = read_token_lines(policy, arguments.input, LineUse::sequences);
  Engine engine(policy.weights, {.max_sequences = 1});
  for (const TokenLine& line : lines) {
    const std::vector<float> scores = engine.score({line.tokens}, 1.0).at(0);
    nlohmann::json log_probs = nlohmann::json::array({nullptr});
    for (const float value : scores) log_probs.push_back(value);
    nlohmann::json out{{"tokens", line.tokens}, {"log_probs", log_probs}};
    if (line.has_prompt) out["prompt_tokens"] = line.prompt_tokens;
    std::printf("%s\n", out.dump().c_str());
  }
  return 0;
}

}  // namespace motley::app
