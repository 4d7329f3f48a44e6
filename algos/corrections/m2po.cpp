// M2PO: of the tokens whose update leads away from the sampler, those with the largest (log r)^2 are masked until the
// mean of the others is at most the threshold.
#include <algorithm>

#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

/// Values from the result up are masked, equal ones together, so that no order of the tokens matters.
double first_masked(std::vector<double> moments, double threshold) {
  std::sort(moments.begin(), moments.end());
  double sum = 0.0;
  for (size_t i = 0; i < moments.size(); ++i) {
    sum += moments[i];
    if (!(sum <= threshold * static_cast<double>(i + 1))) return moments[i];
  }
  return kUnlimited;
}

/// Where the update leads further from the sampler: what PPO's clip would cut, if it were far enough.
bool moves_away(const DrawnToken& token) {
  const double x = token.log_ratio();
  return (token.advantage > 0.0 && x > 0.0) || (token.advantage < 0.0 && x < 0.0);
}

class M2po final : public RatioRule {
 public:
  explicit M2po(const CorrectionParameters& parameters) : threshold_(number(parameters, "threshold")) {}
  Scope scope() const override { return Scope::batch; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    const auto moment = [](const DrawnToken& token) { return token.log_ratio() * token.log_ratio(); };
    std::vector<double> moments;
    for (const DrawnToken& token : tokens)
      if (moves_away(token)) moments.push_back(moment(token));
    const double limit = first_masked(std::move(moments), threshold_);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const bool masked = moves_away(tokens[t]) && moment(tokens[t]) >= limit;
      weights[t] = masked ? 0.0 : bounded_exp(tokens[t].log_ratio());
    }
  }

 private:
  double threshold_;
};

const bool registered = register_correction({
    .name = "m2po",
    .summary = "masks the most extreme ratios of an optimizer step until their second moment is small",
    .formula = "w = r; 0 where A > 0 and r > 1, or A < 0 and r < 1, and (log r)^2 is at or above the cut: the mean of "
               "(log r)^2 over those of these tokens that are below it is at most threshold",
    .source = "arXiv 2510.01161, algorithm 1; r = p / q as in AReaL's page",
    .parameters = {{.name = "threshold",
                    .default_value = 0.04,
                    .meaning = "largest mean of (log r)^2 over the kept tokens that move away from the sampler",
                    .above_minimum = true}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<M2po>(parameters); },
});

}  // namespace
}  // namespace motley::algos
