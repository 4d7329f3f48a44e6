// Veto: one token that the trainer finds all but impossible drops its response.
#include <algorithm>

#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Veto final : public SequenceFilter {
 public:
  explicit Veto(const CorrectionParameters& parameters) : log_low_(std::log(number(parameters, "low"))) {}
  bool keeps(std::span<const DrawnToken> tokens) const override {
    return std::none_of(tokens.begin(), tokens.end(), [&](const DrawnToken& t) { return t.log_ratio() < log_low_; });
  }

 private:
  double log_low_;
};

const bool registered = register_correction({
    .name = "veto",
    .summary = "filter: drops responses with a token of a catastrophic ratio",
    .formula = "keep if no r of the response is below low",
    .source = "verl, miles (rs_veto_threshold)",
    .parameters = {{.name = "low", .default_value = 1e-4, .meaning = "smallest ratio of a kept response"}},
    .filter = [](const CorrectionParameters& parameters) { return std::make_unique<Veto>(parameters); },
});

}  // namespace
}  // namespace motley::algos
