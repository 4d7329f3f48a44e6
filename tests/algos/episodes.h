// Small models and random episodes for the learner's tests. The records come from made-up sampler distributions.
#pragma once

#include <string>
#include <vector>

#include "algos/learner.h"
#include "kernels/philox.h"
#include "tests/algos/token_cases.h"

namespace motley::algos {

inline TransformerConfig tiny_model() {
  TransformerConfig config;
  config.vocabulary = 13;
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 32;
  config.qk_norm = true;
  config.max_positions = 32;
  return config.resolved();
}

/// A plain trainer profile of one type.
inline kernels::NumericProfile plain_profile(DType type) {
  const auto format = type == DType::f64    ? kernels::Format::fp64
                      : type == DType::f32  ? kernels::Format::fp32
                      : type == DType::bf16 ? kernels::Format::bf16
                                            : kernels::Format::fp16;
  kernels::NumericProfile profile;
  profile.name = kernels::dtype_name(type);
  profile.weight.format = profile.activation.format = profile.kv_cache = format;
  profile.output = type;
  return profile;
}

inline LearnerConfig learner_config(const std::string& correction, DType type = DType::f32) {
  LearnerConfig config;
  config.correction = correction;
  config.profile = plain_profile(type);
  config.kv_format = config.profile.kv_cache;
  config.optimizer.lr = 1e-2;
  return config;
}

inline Parameters masters(const TransformerConfig& model, DType type = DType::f32) {
  return Parameters::initialize(model, 5, type == DType::f64 ? DType::f64 : DType::f32);
}

/// Appends a record of `token`, which must be in the sampler's support.
inline void append_record(Trajectory& episode, int32_t drawn, const reference::Token& token, bool listed) {
  TokenRecords& records = episode.records;
  records.tokens.push_back(drawn);
  records.log_q.push_back(static_cast<float>(std::log(token.q[static_cast<size_t>(drawn)])));
  records.versions.push_back(0);
  double q_tail = 0.0;
  for (size_t v = 0; v < token.q.size(); ++v) {
    if (listed && token.listed[v]) {
      records.ids.push_back(static_cast<int32_t>(v));
      records.id_log_q.push_back(static_cast<float>(std::log(token.q[v])));
    } else {
      q_tail += token.q[v];
    }
  }
  records.offsets.push_back(static_cast<int64_t>(records.ids.size()));
  records.log_tail.push_back(q_tail > 0.0 ? static_cast<float>(std::log(q_tail)) : -HUGE_VALF);
}

/// `style` is one of kRecordStyles, or "sampled".
inline Trajectory random_episode(kernels::RandomStream& random, const std::string& style, size_t prompt, size_t answer,
                                 uint64_t group, double reward) {
  const auto vocabulary = static_cast<size_t>(tiny_model().vocabulary);
  Trajectory episode;
  episode.group = group;
  episode.reward = reward;
  episode.sampler = std::string("a");
  for (size_t i = 0; i < prompt; ++i) episode.tokens.push_back(static_cast<int32_t>(random.below(vocabulary)));
  episode.loss_mask.assign(prompt, 0);
  for (size_t i = 0; i < answer; ++i) {
    const reference::Token token = random_token(random, vocabulary, style == "sampled" ? "top_k" : style, 0.5);
    size_t drawn = random.below(vocabulary);
    while (token.q[drawn] == 0.0) drawn = (drawn + 1) % vocabulary;
    append_record(episode, static_cast<int32_t>(drawn), token, style != "sampled");
    episode.tokens.push_back(static_cast<int32_t>(drawn));
    episode.loss_mask.push_back(1);
  }
  return episode;
}

/// Two groups of two: answers of 1, 2, 3 and 10 tokens.
inline std::vector<Trajectory> four_episodes(const std::string& style, uint64_t seed = 21) {
  kernels::RandomStream random({seed, kernels::Purpose::data, 0, 0});
  std::vector<Trajectory> batch;
  batch.push_back(random_episode(random, style, 3, 1, 1, 1.0));
  batch.push_back(random_episode(random, style, 3, 2, 1, 0.0));
  batch.push_back(random_episode(random, style, 4, 3, 2, 0.25));
  batch.push_back(random_episode(random, style, 4, 10, 2, 1.0));
  return batch;
}

/// All gradients in file order.
inline std::vector<double> gradients(const Parameters& parameters) {
  std::vector<double> all;
  for (const std::string& name : parameters.names()) {
    const std::vector<double> one = parameters.at(name).grad_buffer().to_doubles();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace motley::algos
