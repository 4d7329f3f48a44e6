// Geometric mask: responses whose ratios' geometric mean leaves a narrow band are left out.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class GeoMask final : public SequenceFilter {
 public:
  explicit GeoMask(const CorrectionParameters& parameters) : band_(parameters) {}
  bool keeps(std::span<const DrawnToken> tokens) const override { return band_.contains(mean_log_ratio(tokens)); }

 private:
  RatioBand band_;
};

const bool registered = register_correction({
    .name = "geo-mask",
    .summary = "filter: drops responses whose geometric mean of ratios leaves a band",
    .formula = "keep if low <= exp(mean of log r over the response) <= high",
    .source = "Liu et al. 2025; band as in SkyRL (verl: 0.999 to 1.001)",
    .parameters = {{.name = "low", .default_value = 0.99, .meaning = "lower edge of the band"},
                   {.name = "high", .default_value = 1.01, .meaning = "upper edge of the band"}},
    .filter = [](const CorrectionParameters& parameters) { return std::make_unique<GeoMask>(parameters); },
});

}  // namespace
}  // namespace motley::algos
