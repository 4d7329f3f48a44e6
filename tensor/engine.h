// The decoding engine: paged KV cache, continuous batching, weight swaps between two decode steps. Serves samplers,
// `generate`, `score` and `eval`. A plain class: one thread at a time. It computes and draws on the device of its
// weights.
#pragma once

#include <memory>
#include <optional>

#include "kernels/packed_operand.h"
#include "kernels/philox.h"
#include "kernels/quantized_linear.h"
#include "kernels/sampling.h"
#include "tensor/token_record.h"
#include "tensor/transformer.h"
#include "tensor/weight_parts.h"

namespace motley {

/// A weight version as the engines of one profile hold it: quantized from the masters, once per profile, shared by all.
class SamplerWeights {
 public:
  /// Linear layers in the profile's weight format (q/k/v and gate/up share their tensor scale); embedding, norms and
  /// head in its output type. The masters, on any device, are read and not kept. Engines of these weights compute on
  /// `device`; throws std::invalid_argument for a profile that has no kernels there.
  SamplerWeights(const TransformerConfig& config, const Parameters& masters, const kernels::NumericProfile& profile,
                 uint64_t version, const Device& device = {});
  /// The same from an image of such weights (tensor/weight_parts.h) that another process made, on whatever device.
  /// Throws std::invalid_argument, beginning with "weights:", unless `image` has the bytes that these weights consist
  /// of. Any codes and scales are taken: whether they are the sender's is seen by comparing fingerprints().
  SamplerWeights(const TransformerConfig& config, const kernels::NumericProfile& profile, uint64_t version,
                 const Device& device, std::span<const std::byte> image);
  /// The image: weight_parts(config(), profile()), one behind the other. Nothing is kept for it: codes are taken from
  /// the layout that this device computes with, so that it costs `image`'s memory and one matrix in passing.
  void write_image(std::span<std::byte> image) const;
  const Device& device() const { return packed_head_.device(); }
  uint64_t version() const { return version_; }
  const kernels::NumericProfile& profile() const { return profile_; }
  const TransformerConfig& config() const { return config_; }
  const kernels::QuantizedLinear& projection(int64_t layer, Projection projection) const;
  const Tensor& parameter(const std::string& name) const;
  const Tensor& head_weight() const;
  /// The same, laid out for the product of a decode step.
  const kernels::PackedOperand& packed_head() const { return packed_head_; }
  /// Per tensor, of what the engine holds; the same on every device.
  const std::map<std::string, uint64_t>& fingerprints() const { return fingerprints_; }
  /// One number over all of them.
  uint64_t digest() const { return weights_digest(fingerprints_); }

 private:
  SamplerWeights(const TransformerConfig& config, const kernels::NumericProfile& profile, uint64_t version);
  void add_projection(const std::string& name, kernels::QuantizedLinear linear);
  void add_parameter(const std::string& name, const Tensor& on_host, const Device& device);

  TransformerConfig config_;
  kernels::NumericProfile profile_;
  uint64_t version_;
  std::vector<kernels::QuantizedLinear> projections_;
  std::map<std::string, Tensor> parameters_;
  std::map<std::string, uint64_t> fingerprints_;
  kernels::PackedOperand packed_head_;
};

struct GenerateRequest {
  uint64_t id = 0;                   // chosen by the caller, unique among the engine's live requests
  std::vector<int32_t> tokens;       // prompt and everything since; at least one
  int64_t max_new_tokens = 0;        // at least 1
  std::vector<int32_t> stop_tokens;  // drawn and recorded, then the request ends
  kernels::SamplingRule rule;
  RecordKind record = RecordKind::sampled;
  int64_t record_top_k = 128;         // for RecordKind::top_k
  kernels::RandomKey key;             // the draw of a token uses its absolute position in the sequence
  std::optional<int64_t> vocabulary;  // only ids below it may be drawn (a padded vocabulary); absent: all
};

enum class FinishReason : uint8_t { none, stop, length, failed };

/// What one decode step did for one request: new records (one token), and how it ended, if it did.
struct StepOutput {
  uint64_t id = 0;
  TokenRecords records;
  FinishReason finish = FinishReason::none;
  std::string error;  // with FinishReason::failed
};

/// What becomes of the KV cache of running sequences when other weights take over.
enum class KvOnSwap : uint8_t {
  keep,       // it stays: later tokens attend to keys and values of the weights before
  recompute,  // it is computed again, with the new weights, before the next token is drawn
};

/// The KV cache takes memory as it is used, at most that of max_sequences sequences of max_positions positions; what
/// finished sequences leave in it for others is part of that, and at most max_cached_bytes.
struct EngineLimits {
  int64_t max_sequences = 256;     // slots
  int64_t page_size = 16;          // positions per KV page
  int64_t max_batch_rows = 4096;   // rows of one forward pass
  int64_t max_prefill_rows = 512;  // prompt rows of one step: longer prompts take several, while the others decode on
  int64_t max_cached_bytes = int64_t{128} << 20;
  bool share_prefixes = true;  // requests that begin alike compute their beginning once; changes no bit
  KvOnSwap kv_on_swap = KvOnSwap::keep;
  int64_t max_graphs = 16;  // of decode steps, on a device (engine_graphs.h); 0: none; changes no bit
};

struct EngineStats {
  int64_t prefill_rows = 0, decode_rows = 0;  // computed, for given and for drawn tokens
  int64_t shared_rows = 0;                    // not computed: another request's keys and values served
  int64_t kept_rows = 0, dropped_rows = 0;    // of running sequences when other weights came: see KvOnSwap
  int64_t allocated_pages = 0;                // of the KV cache
  int64_t held_pages = 0;                     // by running sequences
  int64_t cached_pages = 0;                   // by nobody, kept for requests to come
  int64_t evicted_pages = 0;                  // so many of those gave way
  int64_t graphs = 0, graph_steps = 0;        // captured, and launched for a step
  std::string graphs_refused;                 // why none are captured; empty: they are where they can be
};

class Engine {
 public:
  Engine(std::shared_ptr<const SamplerWeights> weights, EngineLimits limits);
  ~Engine();

  /// Queues a request; it starts when a slot is free. Throws std::invalid_argument for one that can never run (no
  /// tokens, an id outside the vocabulary, no room for a new token within max_positions, id in use).
  void submit(GenerateRequest request);
  /// Drops a request, running or queued; false if there is none of that id.
  bool cancel(uint64_t id);
  /// Takes effect before the next step. Running sequences go on as limits.kv_on_swap says; a cache that they keep
  /// serves nobody else from then on. Same config, profile and device, or std::invalid_argument.
  void set_weights(std::shared_ptr<const SamplerWeights> weights);
  uint64_t version() const;

  /// One step: admits waiting requests, runs one forward pass over one row per running sequence and what fits of new
  /// prompts, draws one token for each sequence whose tokens are all computed. A request whose logits are no
  /// distribution (NaN, infinity) ends as failed; the others go on. After an exception (no memory left) the next step
  /// computes the running sequences again.
  std::vector<StepOutput> step();
  bool idle() const;  // nothing running, nothing waiting
  int64_t running() const;
  int64_t waiting() const;
  EngineStats stats() const;
  /// Throws ContractError if the counts of who holds which page do not add up; for tests.
  void check_pages() const;

  /// Log-probabilities of given sequences: entry i of result s is log p(token i+1 of s | its first i+1 tokens) at the
  /// given temperature over the whole vocabulary. Independent of what is running.
  std::vector<std::vector<float>> score(const std::vector<std::vector<int32_t>>& sequences, double temperature);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace motley
