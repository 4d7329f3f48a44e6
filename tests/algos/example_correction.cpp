// Tempered importance sampling: the ratio to a power between 0 (plain gradient) and 1 (full correction).
#include <cmath>

#include "algos/correction_piece.h"

namespace motley::algos {
namespace {

class PowerIs final : public TokenRule {
 public:
  explicit PowerIs(const CorrectionParameters& parameters) : power_(number(parameters, "power")) {}
  TokenWeight weight(double log_p, double log_q, double) const override {
    return {.value = bounded_exp(power_ * (log_p - log_q))};
  }

 private:
  double power_;
};

const bool registered = register_correction({
    .name = "power-is",
    .summary = "importance sampling with a tempered ratio",
    .formula = "w = r^power",
    .source = "an example",
    .parameters =
        {{.name = "power", .default_value = 0.5, .meaning = "0: no correction, 1: all of it", .maximum = 1.0}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<PowerIs>(parameters); },
});

}  // namespace
}  // namespace motley::algos
