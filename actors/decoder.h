// What a sampler does, wherever it runs: an engine, what it has drawn since its last report, and how fast it is. A
// plain class: one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/parallel.h"
#include "tensor/engine.h"

namespace motley::actors {

struct DecoderOptions {
  int64_t max_sequences = 256;  // slots of the engine
  bool graphs = true;           // of its decode steps, on a device
  KvOnSwap kv_on_swap = KvOnSwap::keep;
};

/// What has been done since the last report. full_*: in steps that filled at least 90 % of the slots.
struct DecodeCounts {
  uint64_t tokens = 0, busy_ns = 0, full_tokens = 0, full_ns = 0;
  uint64_t steps = 0, rows = 0, prefill_rows = 0, shared_rows = 0, kept_rows = 0;  // of the engine (EngineStats)
  bool operator==(const DecodeCounts&) const = default;
};
struct DecodeReport {
  DecodeCounts counts;
  std::vector<StepOutput> outputs;  // one a session at most: its records since the last one
};
/// Tokens drawn with all slots full, and the time that it took.
struct Calibration {
  uint64_t tokens = 0, busy_ns = 0;
};

class Decoder {
 public:
  explicit Decoder(const DecoderOptions& options) : options_(options) {}

  /// Takes effect before the next step. The first makes the engine: nothing else may be called before.
  void set_weights(std::shared_ptr<const SamplerWeights> weights);
  bool ready() const { return engine_ != nullptr; }
  /// A request that can never run fails alone, in the next report.
  void submit(std::vector<GenerateRequest>& requests);
  bool idle() const { return !engine_ || engine_->idle(); }
  /// One decode step; no compute thread is held between two.
  void step();
  void rest() { compute_.rest(); }
  /// What is due: sessions that have ended or have kChunk records, or, a second after the last report, that work goes
  /// on.
  std::optional<DecodeReport> report();
  /// Ends everything that runs or waits, and gives what had not been reported; their sessions can go on elsewhere.
  DecodeReport leave();
  /// The first half of the requests warms caches, the second is measured. Nothing else may be running.
  Calibration calibrate(const std::vector<GenerateRequest>& requests);
  /// Why decode steps cannot be captured as a graph; once.
  std::optional<std::string> take_refusal();

 private:
  void collect(StepOutput output);
  void count_rows();
  /// One step of the engine under a lease: what it did, and its nanoseconds.
  std::pair<std::vector<StepOutput>, uint64_t> timed_step();

  DecoderOptions options_;
  std::unique_ptr<Engine> engine_;
  kernels::ComputeClient compute_{kernels::ComputeSide::sampler};
  std::unordered_map<uint64_t, StepOutput> chunks_;  // records that are not due yet
  std::unordered_set<uint64_t> live_;                // requests that have not ended
  DecodeReport next_;
  std::chrono::steady_clock::time_point reported_;
  EngineStats counted_;  // what next_.counts has heard of
  std::optional<std::string> refusal_;
  bool refused_ = false;
};

}  // namespace motley::actors
