// Masked importance sampling (IcePop): the ratio inside a band, nothing outside it. A masked token still counts in the
// reduction's denominator.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Mis final : public Correction {
 public:
  explicit Mis(const CorrectionParameters& parameters) : band_(parameters) {}
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    for (size_t t = 0; t < batch.tokens(); ++t) {
      const double log_ratio = drawn_log_ratio(batch, t);
      out.masked[t] = !band_.contains(log_ratio);
      if (out.masked[t] || batch.advantage[t] == 0.0) continue;
      out.b[static_cast<size_t>(batch.sampled[t])] = -batch.advantage[t] * bounded_exp(log_ratio);
    }
  }

 private:
  RatioBand band_;
};

const bool registered = register_correction({
    .name = "mis",
    .summary = "masked importance sampling: tokens whose ratio leaves the band give no gradient",
    .formula = "b[y] = -A r if low <= r <= high, else 0",
    .source = "IcePop, arXiv 2510.18855",
    .defaults = {{"low", 0.5}, {"high", 5.0}},
    .make = [](const CorrectionParameters& parameters) { return std::make_unique<Mis>(parameters); },
});

}  // namespace
}  // namespace motley::algos
