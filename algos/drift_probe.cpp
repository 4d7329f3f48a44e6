#include "algos/drift_probe.h"

#include "algos/metric_values.h"
#include "algos/sample_selection.h"
#include "algos/step_gradient.h"

namespace motley::algos {
namespace {

LearnerConfig probe_config(LearnerConfig config) {
  config.reduction = "constant";  // over samples, whatever their length: a mean with a fixed denominator is unbiased
  config.max_tokens = 1;
  config.profile.kv_cache = config.kv_format;
  if (config.profile.output == DType::f16) config.profile = *kernels::find_profile("fp32");
  return config;
}

using Gradient = std::vector<Tensor>;  // in the parameters' order

Gradient gradient_of(const Parameters& parameters) {
  Gradient gradient;
  for (const std::string& name : parameters.names()) gradient.push_back(parameters.at(name).grad_buffer());
  return gradient;
}

double inner_product(const Gradient& a, const Gradient& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = a[i].to_doubles(), y = b[i].to_doubles();
    for (size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
  }
  return sum;
}

}  // namespace

DriftProbe::DriftProbe(const TransformerConfig& model, Parameters& parameters, const LearnerConfig& config,
                       const std::vector<Rule>& rules)
    : parameters_(parameters),
      config_(probe_config(config)),
      pass_(model.resolved(), config_.profile, config_.checkpoint_activations, parameters.device()) {
  for (const Rule& rule : rules)
    corrections_.emplace_back(rule.correction, make_correction(rule.correction, rule.parameters));
}
DriftProbe::~DriftProbe() = default;

Metrics DriftProbe::measure(const std::vector<Trajectory>& batch, int64_t samples) {
  const TransformerConfig& model = pass_.model();
  const SampleSelection selection = select_samples(batch, model.vocabulary, model.max_positions);
  std::vector<size_t> halves[2];
  for (size_t g = 0; g < selection.groups.size(); ++g) {
    if (static_cast<int64_t>(halves[0].size() + halves[1].size()) >= samples && g >= 2) break;
    halves[g % 2].insert(halves[g % 2].end(), selection.groups[g].begin(), selection.groups[g].end());
  }
  Metrics metrics;
  if (halves[1].empty()) return metrics;
  for (const auto& [name, correction] : corrections_) measure(batch, halves, name, *correction, metrics);
  parameters_.zero_grad();
  return metrics;
}

void DriftProbe::measure(const std::vector<Trajectory>& batch, const std::vector<size_t> (&halves)[2],
                         const std::string& name, const Correction& correction, Metrics& metrics) {
  SampleSelection selection;
  for (const Trajectory& sample : batch) selection.advantage.emplace_back(sample.records.size(), 1.0);
  selection.filtered.assign(batch.size(), 0);
  TrainingBatch training(batch, selection);
  const StepGradient step(pass_, parameters_, correction, config_);
  Gradient first;
  for (const std::vector<size_t>& half : halves) {
    parameters_.zero_grad();
    step.accumulate(training, half, 1.0, nullptr);
    if (!first.empty()) break;
    for (const Tensor& tensor : gradient_of(parameters_)) first.push_back(tensor.clone());
  }
  const Gradient second = gradient_of(parameters_);
  const double drift = inner_product(first, second);
  const double squares = 0.5 * (inner_product(first, first) + inner_product(second, second));
  metrics["drift/" + name + "/squared_norm"] = representable(drift);
  metrics["drift/" + name + "/noise"] = representable(squares - drift);
}

}  // namespace motley::algos
