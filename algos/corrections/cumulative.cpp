// Importance sampling per decision: the product of ratios up to and including the token, which is all that its own
// probability of having been reached depends on.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Cumulative final : public RatioRule {
 public:
  explicit Cumulative(const CorrectionParameters& parameters) : cap_(number(parameters, "cap")) {}
  Scope scope() const override { return Scope::sequence; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    double log_product = 0.0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      log_product += tokens[t].log_ratio();
      weights[t] = std::min(cap_, bounded_exp(log_product));
    }
  }

 private:
  double cap_;
};

const bool registered = register_correction({
    .name = "cumulative",
    .summary = "importance sampling per decision: the product of the ratios up to the token",
    .formula = "w_t = min(product of r over tokens 1 .. t, cap)",
    .source = "Precup, Sutton and Singh 2000; prefix ratio of arXiv 2601.22718",
    .parameters = {cap_parameter(kUnlimited, "; inf: none")},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Cumulative>(parameters); },
});

}  // namespace
}  // namespace motley::algos
