// Truncated importance sampling: the ratio, capped.
#include <algorithm>
#include <stdexcept>

#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Tis final : public Correction {
 public:
  explicit Tis(double cap) : cap_(cap) {
    if (!(cap > 0.0)) throw std::invalid_argument("tis.cap must be above 0");
  }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    for (size_t t = 0; t < batch.tokens(); ++t) {
      if (batch.advantage[t] == 0.0) continue;
      const double weight = std::min(cap_, bounded_exp(drawn_log_ratio(batch, t)));
      out.b[static_cast<size_t>(batch.sampled[t])] = -batch.advantage[t] * weight;
    }
  }

 private:
  double cap_;
};

const bool registered = register_correction({
    .name = "tis",
    .summary = "truncated importance sampling: the ratio, capped",
    .formula = "b[y] = -A min(r, cap)",
    .source = "Yao et al. 2025; cap 2 as in verl, slime and miles",
    .defaults = {{"cap", 2.0}},
    .make = [](const CorrectionParameters& parameters) { return std::make_unique<Tis>(number(parameters, "cap")); },
});

}  // namespace
}  // namespace motley::algos
