#include "algos/audit/policy.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/matmul.h"
#include "kernels/philox.h"
#include "kernels/quantize.h"
#include "tensor/engine.h"

namespace motley::algos::audit {
namespace {

double as_float(double value) { return static_cast<double>(static_cast<float>(value)); }

/// Every row of logits, or of log-probabilities that sum to nearly 1, normalized.
std::vector<double> normalized(std::vector<double> values, int64_t width) {
  for (auto row = values.begin(); row != values.end(); row += width) {
    const double high = *std::max_element(row, row + width);
    double sum = 0.0;
    for (auto v = row; v != row + width; ++v) sum += std::exp(*v - high);
    const double lse = high + std::log(sum);
    for (auto v = row; v != row + width; ++v) *v -= lse;
  }
  return values;
}

class TablePolicy final : public Policy {
 public:
  TablePolicy(const Tree& tree, int64_t vocabulary, uint64_t seed) : vocabulary_(vocabulary) {
    kernels::RandomStream random({seed, kernels::Purpose::init, 0});
    logits_.resize(tree.prefixes().size() * static_cast<size_t>(vocabulary));
    for (double& value : logits_) value = as_float(kLogitDeviation * random.normal());
  }
  std::vector<double> log_p() const override { return normalized(logits_, vocabulary_); }
  std::vector<double> log_q(const kernels::NumericProfile& profile) const override {
    std::vector<float> values(logits_.begin(), logits_.end());
    const auto rows = static_cast<int64_t>(values.size()) / vocabulary_;
    kernels::dequantize(kernels::quantize(values, rows, vocabulary_, profile.weight), values);
    return normalized({values.begin(), values.end()}, vocabulary_);
  }
  void ascend(const std::vector<double>& gradient, double rate) override {
    for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = as_float(logits_[i] + rate * gradient[i]);
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<TablePolicy>(*this); }
  std::vector<double> gram() const override { return {}; }

 private:
  int64_t vocabulary_;
  std::vector<double> logits_;
};

TransformerConfig tiny_transformer(const Tree& tree, int64_t vocabulary) {
  TransformerConfig config;
  config.vocabulary = vocabulary;
  config.layers = 1;
  config.width = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 16;
  config.tied_head = false;
  config.max_positions = static_cast<int64_t>(tree.prefixes().back().size()) + 2;  // the prompt, and the last token
  return config.resolved();
}

kernels::NumericProfile float64_profile() {
  kernels::NumericProfile profile;
  profile.name = "fp64";
  profile.output = DType::f64;
  return profile;
}

std::vector<int32_t> with_prompt(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> all{0};
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

class TransformerPolicy final : public Policy {
 public:
  TransformerPolicy(const Tree& tree, int64_t vocabulary, uint64_t seed)
      : tree_(&tree),
        config_(tiny_transformer(tree, vocabulary)),
        profile_(float64_profile()),
        rope_(config_.max_positions, config_.head_dim, config_.rope_theta, DType::f64),
        parameters_(Parameters::initialize(config_, seed, DType::f64)) {
    // A fresh head's entries have deviation 0.5 / sqrt(width), and hidden states a mean square of 1.
    const Tensor& head = parameters_.at(head_weight_name(config_));
    for (double& value : head.span<double>()) value *= kLogitDeviation / 0.5;
    round_to_float();
    parameters_.set_requires_grad(true);
  }
  TransformerPolicy(const TransformerPolicy& other)
      : tree_(other.tree_),
        config_(other.config_),
        profile_(other.profile_),
        rope_(other.rope_),
        parameters_(other.parameters_.clone()) {
    parameters_.set_requires_grad(true);
  }

  std::vector<double> log_p() const override {
    const NoGrad no_grad;
    return forward_tree([](const HeadResult&) {});
  }
  std::vector<double> log_q(const kernels::NumericProfile& profile) const override;
  void ascend(const std::vector<double>& gradient, double rate) override;
  std::unique_ptr<Policy> clone() const override { return std::make_unique<TransformerPolicy>(*this); }
  std::vector<double> gram() const override;

 private:
  HeadResult run(TrainerContext& context, const PackedSequences& sequences, std::span<const int64_t> rows,
                 std::span<const int32_t> ids) const;
  std::vector<double> forward_tree(const std::function<void(const HeadResult&)>& use) const;
  void append_gradient(const std::vector<int32_t>& prefix, int32_t id, std::vector<double>& gradients) const;
  void round_to_float() {
    for (const std::string& name : parameters_.names()) {
      for (double& value : parameters_.at(name).span<double>()) value = as_float(value);
    }
  }

  const Tree* tree_;
  TransformerConfig config_;
  kernels::NumericProfile profile_;
  RopeTable rope_;
  mutable Parameters parameters_;  // their gradient buffers
};

/// log p of `ids` at each of the rows.
HeadResult TransformerPolicy::run(TrainerContext& context, const PackedSequences& sequences,
                                  std::span<const int64_t> rows, std::span<const int32_t> ids) const {
  auto query = std::make_shared<HeadQuery>();
  query->selected_offsets = {0};
  for (size_t r = 0; r < rows.size(); ++r) {
    query->selected_ids.insert(query->selected_ids.end(), ids.begin(), ids.end());
    query->selected_offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
  }
  const Tensor hidden = trainer_hidden(config_, context, sequences);
  return selected_log_probs(gather_rows(hidden, rows), context.parameter(head_weight_name(config_)), query);
}

/// Every prefix is the beginning of a longest one: those are packed, and each prefix is read where it first appears.
std::vector<double> TransformerPolicy::forward_tree(const std::function<void(const HeadResult&)>& use) const {
  std::map<std::vector<int32_t>, int64_t> place;
  PackedSequences packed;
  const size_t longest = tree_->prefixes().back().size();
  for (const std::vector<int32_t>& prefix : tree_->prefixes()) {
    if (prefix.size() != longest) continue;
    const int64_t start = packed.starts.back();
    packed.append(with_prompt(prefix));
    for (size_t n = 0; n <= longest; ++n) {
      place.try_emplace({prefix.begin(), prefix.begin() + static_cast<int64_t>(n)}, start + static_cast<int64_t>(n));
    }
  }
  std::vector<int64_t> rows;
  for (const std::vector<int32_t>& prefix : tree_->prefixes()) rows.push_back(place.at(prefix));
  std::vector<int32_t> ids;
  for (int32_t v = 0; v < config_.vocabulary; ++v) ids.push_back(v);
  TrainerContext context(config_, parameters_, profile_, rope_);
  const HeadResult result = run(context, packed, rows, ids);
  use(result);
  return result.log_p.to_doubles();
}

std::vector<double> TransformerPolicy::log_q(const kernels::NumericProfile& profile) const {
  Parameters masters = Parameters::zeros(config_, DType::f32);
  for (const std::string& name : masters.names()) {
    const std::vector<double> values = parameters_.at(name).to_doubles();
    std::copy(values.begin(), values.end(), masters.at(name).span<float>().begin());
  }
  Engine engine(std::make_shared<SamplerWeights>(config_, masters, profile, 0), {.max_sequences = 1});
  std::vector<std::vector<int32_t>> sequences;
  for (const Tree::Sequence& sequence : tree_->sequences()) sequences.push_back(with_prompt(sequence.tokens));
  const std::vector<std::vector<float>> scores = engine.score(sequences, 1.0);
  const auto width = static_cast<size_t>(config_.vocabulary);
  std::vector<double> log_q(tree_->prefixes().size() * width);
  for (size_t s = 0; s < scores.size(); ++s) {
    const Tree::Sequence& sequence = tree_->sequences()[s];
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      log_q[sequence.rows[t] * width + static_cast<size_t>(sequence.tokens[t])] = scores[s][t];
    }
  }
  return normalized(std::move(log_q), config_.vocabulary);
}

void TransformerPolicy::ascend(const std::vector<double>& gradient, double rate) {
  parameters_.zero_grad();
  forward_tree([&](const HeadResult& result) {
    head_backward(result, Tensor::from(std::span<const double>(gradient), result.log_p.shape(), DType::f64), {});
  });
  for (const std::string& name : parameters_.names()) {
    const std::vector<double> step = parameters_.at(name).grad_buffer().to_doubles();
    const std::span<double> values = parameters_.at(name).span<double>();
    for (size_t i = 0; i < step.size(); ++i) values[i] += rate * step[i];
  }
  round_to_float();
}

/// Appends the gradient of log p of `id` after the prefix, over all parameters.
void TransformerPolicy::append_gradient(const std::vector<int32_t>& prefix, int32_t id,
                                        std::vector<double>& gradients) const {
  parameters_.zero_grad();
  PackedSequences packed;
  packed.append(with_prompt(prefix));
  const std::vector<int64_t> rows{static_cast<int64_t>(prefix.size())};
  TrainerContext context(config_, parameters_, profile_, rope_);
  const HeadResult result = run(context, packed, rows, std::vector<int32_t>{id});
  head_backward(result, Tensor::from(std::span<const double>(std::vector<double>{1.0}), {1}, DType::f64), {});
  for (const std::string& name : parameters_.names()) {
    const std::vector<double> part = parameters_.at(name).grad_buffer().to_doubles();
    gradients.insert(gradients.end(), part.begin(), part.end());
  }
}

std::vector<double> TransformerPolicy::gram() const {
  std::vector<double> gradients;
  for (const std::vector<int32_t>& prefix : tree_->prefixes()) {
    for (int32_t v = 0; v < config_.vocabulary; ++v) append_gradient(prefix, v, gradients);
  }
  const auto n = static_cast<int64_t>(tree_->prefixes().size()) * config_.vocabulary;
  std::vector<double> gram(static_cast<size_t>(n * n));
  kernels::MatmulArgs product;
  product.a = product.b = kernels::row_major(static_cast<const void*>(gradients.data()), DType::f64, n,
                                             static_cast<int64_t>(gradients.size()) / n);
  product.c = kernels::row_major(gram.data(), DType::f64, n, n);
  kernels::cpu::matmul(product);
  return gram;
}

}  // namespace

std::unique_ptr<Policy> make_table_policy(const Tree& tree, int64_t vocabulary, uint64_t seed) {
  return std::make_unique<TablePolicy>(tree, vocabulary, seed);
}
std::unique_ptr<Policy> make_transformer_policy(const Tree& tree, int64_t vocabulary, uint64_t seed) {
  return std::make_unique<TransformerPolicy>(tree, vocabulary, seed);
}

}  // namespace motley::algos::audit
