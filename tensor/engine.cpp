#include "tensor/engine.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_set>

#include "kernels/device_stream.h"
#include "tensor/engine_draws.h"
#include "tensor/engine_graphs.h"
#include "tensor/engine_schedule.h"
#include "tensor/engine_score.h"

namespace motley {
namespace {

constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;  // 64 MiB of float logits

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
  if (limits.max_sequences < 1 || limits.page_size < 1 || limits.max_batch_rows < 1 || limits.max_prefill_rows < 1) {
    throw std::invalid_argument("max_sequences, page_size, max_batch_rows and max_prefill_rows must be at least 1");
  }
  if (limits.max_graphs < 0) throw std::invalid_argument("max_graphs must not be negative");
  if (limits.max_cached_bytes < 0) throw std::invalid_argument("max_cached_bytes must not be negative");
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
        stream(weights->device()),
        table(config.max_positions, config.head_dim, config.rope_theta, DType::f32, weights->device()),
        schedule(config, weights->profile(), limits, weights->device()),
        lists(weights->device()),
        drawer(weights->device(), config.vocabulary),
        graphs(weights->device(), limits.max_graphs) {
    kernels::finish_stream(weights->device());  // the table is for the engine's stream
  }

  void drain() noexcept;
  void list_draws();
  Tensor hidden_to_draw_from();
  void head(const Tensor& hidden, int64_t first, int64_t rows, float* logits);
  void draw(const Tensor& hidden, std::vector<StepOutput>& outputs);
  std::vector<TokenDraw> draws_from(int64_t first, int64_t rows, std::vector<StepOutput>& outputs);
  int64_t logits_at_once() const;
  bool is_decode_step() const;
  void decode_step(std::vector<StepOutput>& outputs);
  void advance(std::vector<StepOutput>& outputs);

  /// A sequence that draws in this step, and the place of its hidden state among those that are drawn from: requests of
  /// one prompt draw from one.
  struct Drawing {
    size_t sequence;
    int64_t place;
  };

  std::shared_ptr<const SamplerWeights> weights;
  TransformerConfig config;
  EngineLimits limits;
  kernels::Stream stream;  // of all the engine's work
  RopeTable table;
  Schedule schedule;
  std::unordered_set<uint64_t> ids;
  // Of one step; kept for their memory.
  std::vector<Drawing> drawings;
  std::vector<int64_t> draw_rows;  // ascending
  PassLists lists;
  TokenDrawer drawer;
  // Of decode steps as graphs.
  Tensor step_logits;  // [rows of the largest bucket so far, vocabulary]
  DecodeGraphs graphs;
};

Engine::Engine(std::shared_ptr<const SamplerWeights> weights, EngineLimits limits)
    : state_(std::make_unique<State>(std::move(weights), limits)) {}
Engine::~Engine() = default;

void Engine::submit(GenerateRequest request) {
  check_request(request, state_->config);
  if (!state_->ids.insert(request.id).second) refuse(request.id, "the id is in use");
  Sequence sequence;
  sequence.cache.tokens = std::move(request.tokens);
  sequence.prompt = static_cast<int64_t>(sequence.cache.tokens.size());
  sequence.request = std::move(request);
  state_->schedule.submit(std::move(sequence));
}

bool Engine::cancel(uint64_t id) {
  Schedule& schedule = state_->schedule;
  if (state_->ids.erase(id) == 0) return false;
  const auto is_it = [id](const Sequence& sequence) { return sequence.request.id == id; };
  for (Sequence& sequence : schedule.running) {
    if (is_it(sequence)) schedule.leave(sequence);
  }
  std::erase_if(schedule.running, is_it);
  std::erase_if(schedule.waiting, is_it);
  return true;
}

void Engine::set_weights(std::shared_ptr<const SamplerWeights> weights) {
  const SamplerWeights& next = present(weights);
  if (!(next.config() == state_->config)) throw std::invalid_argument("weights of another model");
  if (!(next.profile() == state_->weights->profile())) {
    throw std::invalid_argument("weights of profile " + next.profile().name + " for an engine of profile " +
                                state_->weights->profile().name);
  }
  if (next.device() != state_->weights->device()) throw std::invalid_argument("weights on another device");
  if (next.fingerprints() != state_->weights->fingerprints()) state_->schedule.swap(state_->limits.kv_on_swap);
  state_->weights = std::move(weights);
  state_->graphs.clear();
}

uint64_t Engine::version() const { return state_->weights->version(); }
bool Engine::idle() const { return state_->schedule.running.empty() && state_->schedule.waiting.empty(); }
int64_t Engine::running() const { return static_cast<int64_t>(state_->schedule.running.size()); }
int64_t Engine::waiting() const { return static_cast<int64_t>(state_->schedule.waiting.size()); }
EngineStats Engine::stats() const {
  EngineStats stats = state_->schedule.stats();
  stats.graphs = state_->graphs.captured();
  stats.graph_steps = state_->graphs.launched();
  stats.graphs_refused = state_->graphs.refusal();
  return stats;
}
void Engine::check_pages() const { state_->schedule.check_pages(); }

/// After an exception: waits for what was given to the stream, so that what it uses may go.
void Engine::State::drain() noexcept {
  try {
    kernels::finish_stream(weights->device());
  } catch (const std::exception&) {  // the first one is the one to tell
  }
}

void Engine::State::list_draws() {
  drawings.clear();
  draw_rows.clear();
  for (size_t s = 0; s < schedule.running.size(); ++s) {
    const int64_t row = schedule.running[s].draw_row;
    if (row < 0) continue;
    drawings.push_back({s, row});
    draw_rows.push_back(row);
  }
  std::sort(draw_rows.begin(), draw_rows.end());
  draw_rows.erase(std::unique(draw_rows.begin(), draw_rows.end()), draw_rows.end());
  for (Drawing& drawing : drawings) {
    drawing.place = std::lower_bound(draw_rows.begin(), draw_rows.end(), drawing.place) - draw_rows.begin();
  }
}

/// Runs the pass; the hidden states of the rows to draw from, after the last norm.
Tensor Engine::State::hidden_to_draw_from() {
  const NoGrad no_grad;
  EngineContext context(*weights, schedule.cache, table, lists);
  const auto count = static_cast<int64_t>(draw_rows.size());
  const Device& device = weights->device();
  Tensor wanted = Tensor::empty({count, config.width}, weights->profile().output, device);
  const size_t row_bytes = static_cast<size_t>(config.width) * kernels::dtype_size(wanted.dtype());
  auto* out = static_cast<std::byte*>(wanted.raw());
  auto next = draw_rows.begin();
  const auto of_sequence = [this](size_t s) -> const CachedSequence& { return schedule.running[s].cache; };
  for_each_pass(schedule.rows(), limits.max_batch_rows, of_sequence, lists.rows(), [&](int64_t first, int64_t last) {
    context.send_rows();
    const Tensor hidden = transformer_layers(config, context, lists.rows().ids, lists.rows().positions);
    for (; next != draw_rows.end() && *next < last; ++next, out += row_bytes) {
      const auto* row = static_cast<const std::byte*>(hidden.raw()) + static_cast<size_t>(*next - first) * row_bytes;
      kernels::copy_bytes(out, device, row, device, row_bytes);
    }
  });
  return count == 0 ? wanted : final_norm(config, context, wanted);
}

/// The logits of `rows` rows of `hidden` from `first` on.
void Engine::State::head(const Tensor& hidden, int64_t first, int64_t rows, float* logits) {
  const size_t row_bytes = static_cast<size_t>(config.width) * kernels::dtype_size(hidden.dtype());
  kernels::MatmulArgs product;
  product.a = kernels::row_major(static_cast<const std::byte*>(hidden.raw()) + static_cast<size_t>(first) * row_bytes,
                                 hidden.dtype(), rows, config.width);
  weights->packed_head().put_into(product);
  product.c = kernels::row_major(logits, DType::f32, rows, config.vocabulary);
  MOTLEY_RUN(hidden.device(), matmul, product);
}

/// The draws from `rows` places from `first` on.
std::vector<TokenDraw> Engine::State::draws_from(int64_t first, int64_t rows, std::vector<StepOutput>& outputs) {
  std::vector<TokenDraw> draws;
  for (size_t d = 0; d < drawings.size(); ++d) {
    const int64_t place = drawings[d].place - first;
    if (place < 0 || place >= rows) continue;
    const Sequence& sequence = schedule.running[drawings[d].sequence];
    draws.push_back({place, &sequence.request, static_cast<int64_t>(sequence.cache.tokens.size()), &outputs[d]});
  }
  return draws;
}

int64_t Engine::State::logits_at_once() const { return std::max<int64_t>(1, kLogitsAtOnce / config.vocabulary); }

void Engine::State::draw(const Tensor& hidden, std::vector<StepOutput>& outputs) {
  const auto places = static_cast<int64_t>(draw_rows.size());
  for (int64_t begin = 0; begin < places; begin += logits_at_once()) {
    const int64_t rows = std::min(logits_at_once(), places - begin);
    const Tensor logits = Tensor::empty({rows, config.vocabulary}, DType::f32, hidden.device());
    head(hidden, begin, rows, logits.pointer<float>());
    drawer.draw(logits, draws_from(begin, rows, outputs), weights->version());
  }
}

/// Whether a token is drawn from every row of the pass, for one sequence each in their order, and all at once.
bool Engine::State::is_decode_step() const {
  const auto count = static_cast<int64_t>(drawings.size());
  if (!graphs.wanted() || count == 0 || static_cast<int64_t>(schedule.rows().size()) != count ||
      count > std::min(logits_at_once(), limits.max_batch_rows))
    return false;
  for (int64_t d = 0; d < count; ++d)
    if (drawings[static_cast<size_t>(d)].place != d) return false;
  return true;
}

/// A decode step whose kernels are told nothing that changes from step to step: lists are where those of the step
/// before were, and rows are added up to a number that comes again. An added row does once more what the row with the
/// shortest context does: it writes the same bits, and changes none of another row.
void Engine::State::decode_step(std::vector<StepOutput>& outputs) {
  const auto count = static_cast<int64_t>(drawings.size());
  const int64_t rows = std::min(decode_bucket(count), std::min(logits_at_once(), limits.max_batch_rows));
  PassRows& pass = lists.rows();
  for_each_pass(
      schedule.rows(), count, [this](size_t s) -> const CachedSequence& { return schedule.running[s].cache; }, pass,
      [](int64_t, int64_t) {});
  const auto shortest =
      static_cast<size_t>(std::min_element(pass.positions.begin(), pass.positions.end()) - pass.positions.begin());
  for (int64_t r = count; r < rows; ++r) {
    pass.ids.push_back(pass.ids[shortest]);
    pass.positions.push_back(pass.positions[shortest]);
    pass.page_tables.push_back(pass.page_tables[shortest]);
  }
  const int32_t last = *std::max_element(pass.positions.begin(), pass.positions.end());
  lists.send(schedule.cache.page_size(), longest_bucket(last + 1));
  const std::vector<TokenDraw> draws = draws_from(0, count, outputs);
  drawer.send(draws, rows);
  if (!step_logits.defined() || step_logits.dim(0) < rows) {
    step_logits = Tensor();
    step_logits = Tensor::empty({rows, config.vocabulary}, DType::f32, weights->device());
  }
  float* const logits = step_logits.pointer<float>();
  const DecodeGraphs::Places places{logits, schedule.cache.pages_allocated(), lists.moves(), drawer.moves()};
  graphs.run({rows, lists.longest()}, places, [&] {
    const NoGrad no_grad;
    EngineContext context(*weights, schedule.cache, table, lists);
    context.begin_pass();
    head(final_norm(config, context, transformer_layers(config, context, pass.ids, pass.positions)), 0, rows, logits);
    drawer.launch(logits, rows);
  });
  schedule.computed();
  drawer.take(logits, draws, weights->version());
}

void Engine::State::advance(std::vector<StepOutput>& outputs) {
  for (size_t d = 0; d < outputs.size(); ++d) {
    Sequence& sequence = schedule.running[drawings[d].sequence];
    StepOutput& output = outputs[d];
    output.id = sequence.request.id;
    if (output.finish != FinishReason::failed) {
      const int32_t token = output.records.tokens.front();
      sequence.cache.tokens.push_back(token);
      ++sequence.generated;
      output.finish = finish_reason(sequence, token, config.max_positions);
    }
    if (output.finish == FinishReason::none) continue;
    sequence.finished = true;
    schedule.leave(sequence);
    ids.erase(output.id);
  }
  std::erase_if(schedule.running, [](const Sequence& sequence) { return sequence.finished; });
}

std::vector<StepOutput> Engine::step() {
  State& state = *state_;
  const kernels::StreamScope scope(state.stream);
  std::vector<StepOutput> outputs;
  try {
    state.schedule.plan();
    state.list_draws();
    outputs.resize(state.drawings.size());
    if (state.is_decode_step()) {
      state.decode_step(outputs);
    } else {
      const Tensor hidden = state.hidden_to_draw_from();
      state.schedule.computed();
      state.draw(hidden, outputs);
    }
  } catch (...) {
    state.drain();
    state.schedule.restart();
    throw;
  }
  state.advance(outputs);
  return outputs;
}

std::vector<std::vector<float>> Engine::score(const std::vector<std::vector<int32_t>>& sequences, double temperature) {
  const kernels::StreamScope scope(state_->stream);
  try {
    return score_sequences(*state_->weights, state_->table, state_->limits, sequences, temperature);
  } catch (...) {
    state_->drain();
    throw;
  }
}

}  // namespace motley
