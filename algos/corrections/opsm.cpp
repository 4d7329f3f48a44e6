// Off-policy sequence masking: bad responses that the trainer has already moved far away from are left out; good ones
// never are.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Opsm final : public SequenceFilter {
 public:
  explicit Opsm(const CorrectionParameters& parameters) : delta_(number(parameters, "delta")) {}
  bool keeps(std::span<const DrawnToken> tokens) const override {
    double advantage = 0.0;  // of the response: where turns differ, their sum over tokens decides
    for (const DrawnToken& token : tokens) advantage += token.advantage;
    return !(advantage < 0.0 && -mean_log_ratio(tokens) > delta_);
  }

 private:
  double delta_;
};

const bool registered = register_correction({
    .name = "opsm",
    .summary = "filter: drops responses of negative advantage that have become improbable",
    .formula = "drop if A < 0 and the mean of log(q / p) over the response is above delta",
    .source = "DeepSeek-V3.2, arXiv 2512.02556 eq. 9 (delta undisclosed); 0.5 as in TRL's documentation",
    .parameters = {{.name = "delta", .default_value = 0.5, .meaning = "largest mean of log(q / p), in nats"}},
    .filter = [](const CorrectionParameters& parameters) { return std::make_unique<Opsm>(parameters); },
});

}  // namespace
}  // namespace motley::algos
