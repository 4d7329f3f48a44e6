// Importance sampling per token, untruncated but for the bound on log-ratios.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class TokenIs final : public TokenRule {
 public:
  TokenWeight weight(double, double, double) const override { return TokenWeight::ratio(); }
};

const bool registered = register_correction({
    .name = "token-is",
    .summary = "importance sampling per token: the ratio as it is",
    .formula = "w = r",
    .source = "first-order form of sequence importance sampling, arXiv 2512.01374",
    .parameters = {},
    .ratio_rule = [](const CorrectionParameters&) { return std::make_unique<TokenIs>(); },
});

}  // namespace
}  // namespace motley::algos
