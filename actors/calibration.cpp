#include "actors/calibration.h"

#include <algorithm>

#include "kernels/philox.h"

namespace motley::actors {
namespace {

constexpr int64_t kBurstTokens = 8;  // per slot

/// The n-th prompt; for an interaction, whose prompt its task alone knows, tokens that stand for one.
std::vector<int32_t> calibration_prompt(const Fleet& fleet, uint64_t n) {
  const envs::TaskMix::Pick pick = fleet.tasks->training(n);
  if (!fleet.tasks->entries()[pick.entry].task->interacts()) return fleet.tokenizer.encode(pick.problem.prompt);
  constexpr int64_t kLength = 64;
  std::vector<int32_t> tokens(static_cast<size_t>(std::clamp<int64_t>(fleet.model.max_positions / 2, 1, kLength)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(kernels::mix(n, i) % static_cast<uint64_t>(fleet.tokenizer.size()));
  return tokens;
}

}  // namespace

std::vector<GenerateRequest> calibration_requests(const Fleet& fleet, size_t group) {
  const SamplingOptions& sampling = fleet.experiment.sampling;
  const auto slots = static_cast<uint64_t>(fleet.experiment.samplers.at(group).max_sequences);
  std::vector<GenerateRequest> requests(2 * slots);
  for (uint64_t place = 0; place < requests.size(); ++place) {
    GenerateRequest& request = requests[place];
    request.id = place % slots;
    // Prompts of their own, or the cache of the first burst would spare the second its prefill.
    request.tokens = calibration_prompt(fleet, place);
    request.max_new_tokens = std::min<int64_t>(kBurstTokens, sampling.max_tokens);
    request.rule = {
        .temperature = sampling.temperature, .top_p = sampling.top_p, .top_k = static_cast<int32_t>(sampling.top_k)};
    request.record = fleet.experiment.record_kind();
    request.record_top_k = sampling.record_top_k;
    request.key = {
        .seed = fleet.experiment.seed, .purpose = kernels::Purpose::generate, .session = request.id, .attempt = 0};
  }
  return requests;
}

}  // namespace motley::actors
