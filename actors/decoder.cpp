#include "actors/decoder.h"

#include <algorithm>

#include "actors/policy/losses.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kFull = 0.9;                   // share of the slots from which a step counts for the capacity
constexpr std::chrono::seconds kSignOfLife{1};  // between two reports while work goes on

uint64_t nanoseconds_since(Clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace

void Decoder::set_weights(std::shared_ptr<const SamplerWeights> weights) {
  if (engine_) {
    engine_->set_weights(std::move(weights));
    return;
  }
  EngineLimits limits;
  limits.max_sequences = options_.max_sequences;
  if (!options_.graphs) limits.max_graphs = 0;
  limits.kv_on_swap = options_.kv_on_swap;
  {
    const kernels::ComputeLease lease(compute_);  // the angles of every position are computed
    engine_ = std::make_unique<Engine>(std::move(weights), limits);
  }
  compute_.rest();
}

void Decoder::submit(std::vector<GenerateRequest>& requests) {
  if (engine_->idle()) reported_ = Clock::now();
  for (GenerateRequest& request : requests) {
    const uint64_t id = request.id;
    try {
      engine_->submit(std::move(request));
      live_.insert(id);
    } catch (const std::invalid_argument& error) {
      next_.outputs.push_back({.id = id, .records = {}, .finish = FinishReason::failed, .error = error.what()});
    }
  }
}

void Decoder::step() {
  auto [outputs, elapsed] = timed_step();
  DecodeCounts& counts = next_.counts;
  counts.tokens += outputs.size();
  counts.busy_ns += elapsed;
  if (static_cast<double>(outputs.size()) >= kFull * static_cast<double>(options_.max_sequences)) {
    counts.full_tokens += outputs.size();
    counts.full_ns += elapsed;
  }
  count_rows();
  for (StepOutput& output : outputs) collect(std::move(output));
}

void Decoder::count_rows() {
  EngineStats now = engine_->stats();
  const auto since = [&](int64_t EngineStats::*count) { return static_cast<uint64_t>(now.*count - counted_.*count); };
  ++next_.counts.steps;
  next_.counts.rows += since(&EngineStats::prefill_rows) + since(&EngineStats::decode_rows);
  next_.counts.prefill_rows += since(&EngineStats::prefill_rows);
  next_.counts.shared_rows += since(&EngineStats::shared_rows);
  next_.counts.kept_rows += since(&EngineStats::kept_rows);
  if (!now.graphs_refused.empty() && !std::exchange(refused_, true)) refusal_ = now.graphs_refused;
  counted_ = std::move(now);
}

std::pair<std::vector<StepOutput>, uint64_t> Decoder::timed_step() {
  const kernels::ComputeLease lease(compute_);
  const auto start = Clock::now();  // waiting for the lease says nothing about the capacity
  std::vector<StepOutput> outputs = engine_->step();
  return {std::move(outputs), nanoseconds_since(start)};
}

void Decoder::collect(StepOutput output) {
  if (output.finish != FinishReason::none) live_.erase(output.id);
  const auto found = chunks_.find(output.id);
  if (found == chunks_.end()) {
    if (output.finish != FinishReason::none) {
      next_.outputs.push_back(std::move(output));
    } else {
      chunks_.emplace(output.id, std::move(output));
    }
    return;
  }
  StepOutput& chunk = found->second;
  chunk.records.append(output.records);
  chunk.finish = output.finish;
  chunk.error = std::move(output.error);
  if (chunk.finish == FinishReason::none && chunk.records.size() < kChunk) return;
  next_.outputs.push_back(std::move(chunk));
  chunks_.erase(found);
}

std::optional<DecodeReport> Decoder::report() {
  const auto now = Clock::now();
  const bool alive = next_.counts.steps > 0 && now - reported_ >= kSignOfLife;
  if (next_.outputs.empty() && !alive) return std::nullopt;
  reported_ = now;
  return std::exchange(next_, {});
}

DecodeReport Decoder::leave() {
  for (const uint64_t id : live_) engine_->cancel(id);
  live_.clear();
  for (auto& [id, chunk] : chunks_) next_.outputs.push_back(std::move(chunk));
  chunks_.clear();
  return std::exchange(next_, {});
}

Calibration Decoder::calibrate(const std::vector<GenerateRequest>& requests) {
  Calibration result;
  const size_t half = requests.size() / 2;
  for (const bool counted : {false, true}) {
    for (size_t i = 0; i < half; ++i) {
      GenerateRequest request = requests[counted ? half + i : i];
      if (!counted) request.max_new_tokens = 1;
      engine_->submit(std::move(request));
    }
    while (!engine_->idle()) {
      const auto [outputs, elapsed] = timed_step();
      if (!counted) continue;
      result.tokens += outputs.size();
      result.busy_ns += elapsed;
    }
  }
  compute_.rest();
  counted_ = engine_->stats();
  return result;
}

std::optional<std::string> Decoder::take_refusal() { return std::exchange(refusal_, std::nullopt); }

}  // namespace motley::actors
