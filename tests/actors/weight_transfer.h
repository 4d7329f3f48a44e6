// A tiny model's versions, and a client of a weight server that keeps what it was handed.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>

#include "actors/weights/client.h"
#include "actors/weights/server.h"

namespace motley::actors {

inline TransformerConfig transfer_model() {
  TransformerConfig c;
  c.vocabulary = 11, c.layers = 1, c.width = 16, c.heads = 2, c.kv_heads = 1, c.head_dim = 8, c.ffn = 20;
  c.max_positions = 40;
  return c.resolved();
}

inline std::shared_ptr<const SamplerWeights> transfer_weights(uint64_t version, const std::string& profile = "bf16",
                                                              TransformerConfig config = transfer_model()) {
  return std::make_shared<SamplerWeights>(config, Parameters::initialize(config, 100 + version),
                                          *kernels::find_profile(profile), version);
}

/// The next version of weights after a step that moves few of them: what deltas are good at.
inline std::shared_ptr<const SamplerWeights> moved_weights(uint64_t version, const std::string& profile = "bf16",
                                                           TransformerConfig config = transfer_model()) {
  Parameters parameters = Parameters::initialize(config, 100);
  for (uint64_t v = 0; v < version; ++v)
    for (const std::string& name : parameters.names())
      parameters.at(name).span<float>()[v % static_cast<uint64_t>(parameters.at(name).numel())] += 0.5f;
  return std::make_shared<SamplerWeights>(config, parameters, *kernels::find_profile(profile), version);
}

inline std::vector<std::byte> image_of(const SamplerWeights& weights) {
  std::vector<std::byte> image(image_bytes(weight_parts(weights.config(), weights.profile())));
  weights.write_image(image);
  return image;
}

/// Limits that a test can wait for.
inline WeightClientLimits short_limits() {
  using std::chrono::milliseconds;
  return {.answer = milliseconds(150), .attempts = 2, .first_pause = milliseconds(5)};
}

inline WeightClientOptions client_options(const std::string& fetch, const std::string& announce,
                                          const std::string& profile = "bf16") {
  WeightClientOptions options;
  options.fetch = fetch;
  options.announce = announce;
  options.kind = profile;
  options.config = transfer_model();
  options.profile = *kernels::find_profile(profile);
  return options;
}
inline WeightClientOptions client_options(const WeightServer& server, const std::string& profile = "bf16") {
  return client_options(server.fetch_endpoint(), server.announce_endpoint(), profile);
}

class Receiver {
 public:
  Receiver(zmq::context_t& context, const WeightClientOptions& options)
      : client_(
            context, options,
            [this](std::shared_ptr<const SamplerWeights> weights) {
              const std::lock_guard lock(mutex_);
              received_.push_back(std::move(weights));
              changed_.notify_all();
            },
            [this](const std::string& text) {
              const std::lock_guard lock(mutex_);
              failures_.push_back(text);
              changed_.notify_all();
            }) {}

  /// The weights of that version, once they are there; null after ten seconds without.
  std::shared_ptr<const SamplerWeights> await(uint64_t version) {
    std::unique_lock lock(mutex_);
    const auto here = [&] { return !received_.empty() && received_.back()->version() == version; };
    return changed_.wait_for(lock, kPatience, here) ? received_.back() : nullptr;
  }
  /// The text of the failure; empty after ten seconds without.
  std::string await_failure() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return !failures_.empty(); }) ? failures_.front() : "";
  }
  std::vector<uint64_t> versions() {
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t> all;
    for (const auto& weights : received_) all.push_back(weights->version());
    return all;
  }
  size_t failures() {
    const std::lock_guard lock(mutex_);
    return failures_.size();
  }
  WeightClientStats stats() const { return client_.stats(); }

 private:
  static constexpr std::chrono::seconds kPatience{10};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<const SamplerWeights>> received_;
  std::vector<std::string> failures_;
  WeightClient client_;  // last: its thread uses the others
};

/// Waits for at most ten seconds for what another thread brings about.
inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace motley::actors
