// M2PO: tokens with the largest (log r)^2 are masked until the mean of the others is at most the threshold.
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

class M2po final : public RatioRule {
 public:
  explicit M2po(const CorrectionParameters& parameters) : threshold_(number(parameters, "threshold")) {}
  Scope scope() const override { return Scope::batch; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    std::vector<double> moments;
    for (const DrawnToken& token : tokens) moments.push_back(token.log_ratio() * token.log_ratio());
    const double limit = first_masked(moments, threshold_);
    for (size_t t = 0; t < tokens.size(); ++t) {
      weights[t] = moments[t] < limit ? bounded_exp(tokens[t].log_ratio()) : 0.0;
    }
  }

 private:
  double threshold_;
};

const bool registered = register_correction({
    .name = "m2po",
    .summary = "masks the most extreme ratios of an optimizer step until their second moment is small",
    .formula =
        "w = r if (log r)^2 is below the cut, else 0; the cut: the mean of (log r)^2 over what is kept is at most "
        "threshold",
    .source = "arXiv 2510.01161; r = p / q as in AReaL's page, the masking order from memory",
    .parameters = {{.name = "threshold",
                    .default_value = 0.04,
                    .meaning = "largest mean of (log r)^2 over the kept tokens",
                    .above_minimum = true}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<M2po>(parameters); },
});

}  // namespace
}  // namespace motley::algos
