#include "algos/mismatch/responses.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace motley::algos::mismatch {
namespace {

constexpr int64_t kSlots = 64, kRowsAtOnce = 4096;

GenerateRequest request_of(const std::vector<int32_t>& prompt, uint64_t number, const Drawing& drawing) {
  GenerateRequest request;
  request.id = number;
  request.tokens = prompt;
  request.max_new_tokens = drawing.length;
  request.stop_tokens = drawing.stop_tokens;
  request.rule = {drawing.temperature, 1.0, 0};
  request.key = {drawing.seed, kernels::Purpose::generate, number, 0};
  if (drawing.vocabulary > 0) request.vocabulary = drawing.vocabulary;
  return request;
}

/// Copies the states that the drawn tokens were drawn from: those of the positions before them.
void take_rows(const Tensor& hidden, const Responses& responses, int64_t first, int64_t last, float* out) {
  const auto width = static_cast<size_t>(hidden.dim(1));
  const float* sequence = hidden.data<float>();
  for (int64_t s = first; s < last; ++s) {
    const auto i = static_cast<size_t>(s);
    const auto drawn = static_cast<size_t>(responses.offsets[i + 1] - responses.offsets[i]);
    const float* from = sequence + (static_cast<size_t>(responses.prompt_tokens[i]) - 1) * width;
    std::memcpy(out, from, drawn * width * sizeof(float));
    out += drawn * width;
    sequence += responses.sequences[i].size() * width;
  }
}

}  // namespace

Responses draw_responses(std::shared_ptr<const SamplerWeights> weights,
                         const std::vector<std::vector<int32_t>>& prompts, const Drawing& drawing) {
  if (prompts.empty()) throw std::invalid_argument("there are no prompts");
  if (drawing.responses < 1) throw std::invalid_argument("at least one response is needed");
  if (!(drawing.temperature > 0.0)) throw std::invalid_argument("the temperature must be above 0");
  Responses responses;
  responses.vocabulary = drawing.vocabulary > 0 ? drawing.vocabulary : weights->config().vocabulary;
  responses.temperature = drawing.temperature;
  Engine engine(std::move(weights), {.max_sequences = std::min(kSlots, drawing.responses)});
  for (int64_t n = 0; n < drawing.responses; ++n) {
    const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(n) % prompts.size()];
    responses.sequences.push_back(prompt);
    responses.prompt_tokens.push_back(static_cast<int64_t>(prompt.size()));
    engine.submit(request_of(prompt, static_cast<uint64_t>(n), drawing));
  }
  std::vector<std::vector<float>> log_q(responses.sequences.size());
  while (!engine.idle()) {
    for (const StepOutput& output : engine.step()) {
      if (output.finish == FinishReason::failed) throw std::runtime_error("decoding failed: " + output.error);
      std::vector<int32_t>& sequence = responses.sequences[output.id];
      sequence.insert(sequence.end(), output.records.tokens.begin(), output.records.tokens.end());
      log_q[output.id].insert(log_q[output.id].end(), output.records.log_q.begin(), output.records.log_q.end());
    }
  }
  for (size_t s = 0; s < log_q.size(); ++s) {
    const std::vector<int32_t>& sequence = responses.sequences[s];
    responses.ids.insert(responses.ids.end(), sequence.begin() + responses.prompt_tokens[s], sequence.end());
    responses.log_q.insert(responses.log_q.end(), log_q[s].begin(), log_q[s].end());
    responses.offsets.push_back(responses.tokens());
  }
  return responses;
}

HeadInput score_responses(MixedWeights& weights, const Assignment& assignment, const RopeTable& table,
                          const Responses& responses) {
  Tensor hidden = Tensor::empty({responses.tokens(), weights.config().width}, DType::f32);
  for (int64_t first = 0; first < responses.count();) {
    PackedSequences packed;
    int64_t last = first;
    do {
      packed.append(responses.sequences[static_cast<size_t>(last)]);
      ++last;
    } while (last < responses.count() &&
             packed.ids.size() + responses.sequences[static_cast<size_t>(last)].size() <= kRowsAtOnce);
    float* out = hidden.data<float>() + responses.offsets[static_cast<size_t>(first)] * weights.config().width;
    take_rows(mixed_hidden(weights, assignment, table, packed), responses, first, last, out);
    first = last;
  }
  return {hidden, mixed_head(weights, assignment)};
}

}  // namespace motley::algos::mismatch
