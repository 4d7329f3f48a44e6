#include "tensor/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <unordered_set>

#include "kernels/parallel.h"
#include "tensor/engine_context.h"
#include "tensor/engine_records.h"
#include "tensor/engine_score.h"

namespace motley {
namespace {

constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;  // 64 MiB of float logits

struct Sequence {
  GenerateRequest request;  // its tokens move to `cache`
  CachedSequence cache;
  int64_t generated = 0;
};

[[noreturn]] void refuse(uint64_t id, const std::string& reason) {
  throw std::invalid_argument("request " + std::to_string(id) + ": " + reason);
}

void check_request(const GenerateRequest& request, const TransformerConfig& config) {
  const kernels::SamplingRule& rule = request.rule;
  if (request.tokens.empty()) refuse(request.id, "no tokens");
  check_tokens(request.tokens, config.vocabulary, "request " + std::to_string(request.id));
  if (static_cast<int64_t>(request.tokens.size()) >= config.max_positions) {
    refuse(request.id, std::to_string(request.tokens.size()) + " tokens leave no room for a new one within " +
                           std::to_string(config.max_positions) + " positions");
  }
  if (request.max_new_tokens < 1) refuse(request.id, "max_new_tokens must be at least 1");
  if (!(rule.temperature >= 0.0) || std::isinf(rule.temperature)) {
    refuse(request.id, "temperature must be a finite number of at least 0");
  }
  if (!(rule.top_p > 0.0 && rule.top_p <= 1.0)) refuse(request.id, "top_p must be in (0, 1]");
  if (rule.top_k < 0) refuse(request.id, "top_k must be at least 0");
  if (request.record == RecordKind::top_k && request.record_top_k < 1) {
    refuse(request.id, "record_top_k must be at least 1");
  }
  if (request.vocabulary && (*request.vocabulary < 1 || *request.vocabulary > config.vocabulary)) {
    refuse(request.id, "vocabulary must be between 1 and " + std::to_string(config.vocabulary));
  }
}

const SamplerWeights& present(const std::shared_ptr<const SamplerWeights>& weights) {
  if (!weights) throw std::invalid_argument("an engine needs weights");
  return *weights;
}

const EngineLimits& checked(const EngineLimits& limits) {
  if (limits.max_sequences < 1 || limits.page_size < 1 || limits.max_batch_rows < 1) {
    throw std::invalid_argument("max_sequences, page_size and max_batch_rows must be at least 1");
  }
  return limits;
}

FinishReason finish_reason(const Sequence& sequence, int32_t token, int64_t max_positions) {
  const std::vector<int32_t>& stops = sequence.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return FinishReason::stop;
  if (sequence.generated >= sequence.request.max_new_tokens) return FinishReason::length;
  if (static_cast<int64_t>(sequence.cache.tokens.size()) >= max_positions) return FinishReason::length;
  return FinishReason::none;
}

}  // namespace

struct Engine::State {
  State(std::shared_ptr<const SamplerWeights> initial, EngineLimits engine_limits)
      : weights(std::move(initial)),
        config(present(weights).config()),
        limits(checked(engine_limits)),
        table(config.max_positions, config.head_dim, config.rope_theta, DType::f32),
        cache(config, weights->profile(), limits.page_size, limits.max_sequences) {}

  void admit();
  std::vector<std::byte> last_hidden_states();
  void draw(std::span<const std::byte> hidden, std::vector<StepOutput>& outputs);
  void retire(const std::vector<StepOutput>& outputs);

  std::shared_ptr<const SamplerWeights> weights;
  TransformerConfig config;
  EngineLimits limits;
  RopeTable table;
  KvCache cache;
  std::deque<Sequence> waiting;
  std::vector<Sequence> running;  // in order of admission
  std::unordered_set<uint64_t> ids;
  std::vector<float> logits;
};

Engine::Engine(std::shared_ptr<const SamplerWeights> weights, EngineLimits limits)
    : state_(std::make_unique<State>(std::move(weights), limits)) {}
Engine::~Engine() = default;

void Engine::submit(GenerateRequest request) {
  check_request(request, state_->config);
  if (!state_->ids.insert(request.id).second) refuse(request.id, "the id is in use");
  Sequence sequence;
  sequence.cache.tokens = std::move(request.tokens);
  sequence.request = std::move(request);
  state_->waiting.push_back(std::move(sequence));
}

bool Engine::cancel(uint64_t id) {
  State& state = *state_;
  if (state.ids.erase(id) == 0) return false;
  const auto is_it = [id](const Sequence& sequence) { return sequence.request.id == id; };
  for (Sequence& sequence : state.running) {
    if (is_it(sequence)) state.cache.release(sequence.cache.pages);
  }
  std::erase_if(state.running, is_it);
  std::erase_if(state.waiting, is_it);
  return true;
}

void Engine::set_weights(std::shared_ptr<const SamplerWeights> weights) {
  const SamplerWeights& next = present(weights);
  if (!(next.config() == state_->config)) throw std::invalid_argument("weights of another model");
  if (!(next.profile() == state_->weights->profile())) {
    throw std::invalid_argument("weights of profile " + next.profile().name + " for an engine of profile " +
                                state_->weights->profile().name);
  }
  state_->weights = std::move(weights);
}

uint64_t Engine::version() const { return state_->weights->version(); }
bool Engine::idle() const { return state_->running.empty() && state_->waiting.empty(); }
int64_t Engine::running() const { return static_cast<int64_t>(state_->running.size()); }
int64_t Engine::waiting() const { return static_cast<int64_t>(state_->waiting.size()); }

void Engine::State::admit() {
  auto rows = static_cast<int64_t>(running.size());
  bool admitted = false;
  while (!waiting.empty() && static_cast<int64_t>(running.size()) < limits.max_sequences) {
    const auto prompt = static_cast<int64_t>(waiting.front().cache.tokens.size());
    // One prompt always gets in, in pieces if it must: else a long one would wait for ever.
    if (admitted && rows + prompt > limits.max_batch_rows) break;
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
    rows += prompt;
    admitted = true;
  }
}

std::vector<std::byte> Engine::State::last_hidden_states() {
  std::vector<CachedSequence*> sequences;
  sequences.reserve(running.size());
  for (Sequence& sequence : running) sequences.push_back(&sequence.cache);
  const size_t row_bytes = static_cast<size_t>(config.width) * kernels::dtype_size(weights->profile().output);
  std::vector<std::byte> last(running.size() * row_bytes);
  EngineContext context(*weights, cache, table);
  forward_missing(context, config, cache, sequences, limits.max_batch_rows,
                  [&](const Tensor& hidden, std::span<const CachedRow> rows) {
                    const auto* bytes = static_cast<const std::byte*>(hidden.raw());
                    for (size_t r = 0; r < rows.size(); ++r) {
                      const auto length = static_cast<int32_t>(sequences[rows[r].sequence]->tokens.size());
                      if (rows[r].position + 1 != length) continue;
                      std::memcpy(last.data() + rows[r].sequence * row_bytes, bytes + r * row_bytes, row_bytes);
                    }
                  });
  return last;
}

void Engine::State::draw(std::span<const std::byte> hidden, std::vector<StepOutput>& outputs) {
  const auto count = static_cast<int64_t>(running.size());
  const DType dtype = weights->profile().output;
  const size_t row_bytes = static_cast<size_t>(config.width) * kernels::dtype_size(dtype);
  const int64_t at_once = std::max<int64_t>(1, kLogitsAtOnce / config.vocabulary);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t rows = std::min(at_once, count - begin);
    logits.resize(static_cast<size_t>(rows * config.vocabulary));
    kernels::MatmulArgs product;
    product.a = kernels::row_major(hidden.data() + static_cast<size_t>(begin) * row_bytes, dtype, rows, config.width);
    product.packed = &weights->packed_head();
    product.c = kernels::row_major(logits.data(), DType::f32, rows, config.vocabulary);
    kernels::cpu::matmul(product);
    const int64_t grain = std::max<int64_t>(1, 8192 / config.vocabulary);
    kernels::parallel_for(rows, grain, [&](int64_t first, int64_t last) {
      std::vector<float> scaled;
      for (int64_t r = first; r < last; ++r) {
        const Sequence& sequence = running[static_cast<size_t>(begin + r)];
        StepOutput& output = outputs[static_cast<size_t>(begin + r)];
        const int64_t allowed = sequence.request.vocabulary.value_or(config.vocabulary);
        try {
          draw_and_record({logits.data() + r * config.vocabulary, static_cast<size_t>(allowed)}, sequence.request,
                          static_cast<int64_t>(sequence.cache.tokens.size()), weights->version(), scaled,
                          output.records);
        } catch (const std::runtime_error& error) {
          output.finish = FinishReason::failed;
          output.error = error.what();
        }
      }
    });
  }
}

void Engine::State::retire(const std::vector<StepOutput>& outputs) {
  size_t kept = 0;
  for (size_t s = 0; s < running.size(); ++s) {
    if (outputs[s].finish != FinishReason::none) {
      cache.release(running[s].cache.pages);
      ids.erase(running[s].request.id);
      continue;
    }
    if (kept != s) running[kept] = std::move(running[s]);
    ++kept;
  }
  running.resize(kept);
}

std::vector<StepOutput> Engine::step() {
  State& state = *state_;
  state.admit();
  std::vector<StepOutput> outputs(state.running.size());
  if (outputs.empty()) return outputs;
  state.draw(state.last_hidden_states(), outputs);
  for (size_t s = 0; s < outputs.size(); ++s) {
    Sequence& sequence = state.running[s];
    outputs[s].id = sequence.request.id;
    if (outputs[s].finish == FinishReason::failed) continue;
    const int32_t token = outputs[s].records.tokens.front();
    sequence.cache.cached = static_cast<int64_t>(sequence.cache.tokens.size());
    sequence.cache.tokens.push_back(token);
    ++sequence.generated;
    outputs[s].finish = finish_reason(sequence, token, state.config.max_positions);
  }
  state.retire(outputs);
  return outputs;
}

std::vector<std::vector<float>> Engine::score(const std::vector<std::vector<int32_t>>& sequences, double temperature) {
  return score_sequences(*state_->weights, state_->table, state_->limits, sequences, temperature);
}

}  // namespace motley
