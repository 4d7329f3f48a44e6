// Decoupled PPO (AReaL): PPO's clip around a proximal policy near the trainer, times the weight of that policy against
// the sampler. The general form of "importance weight x PPO clip": truncated it is the published token-level TIS,
// masked with band [0.5, 5] the published IcePop, masked at sequence level the published Seq-MIS.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Decoupled final : public RatioRule {
 public:
  explicit Decoupled(const CorrectionParameters& parameters)
      : clip_(number(parameters, "clip_low"), number(parameters, "clip_high")),
        recomputes_(text(parameters, "proximal") == "recompute"),
        whole_sequence_(text(parameters, "level") == "sequence"),
        action_(text(parameters, "weight")),
        band_(parameters),
        low_(number(parameters, "low")),
        high_(number(parameters, "high")) {}
  Scope scope() const override { return whole_sequence_ ? Scope::sequence : Scope::token; }
  bool needs_old_log_probs() const override { return recomputes_; }
  bool clips_against_old() const override { return true; }

  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    double whole = 0.0;
    for (const DrawnToken& token : tokens) whole += log_proximal(token) - token.log_q;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double log_prox = log_proximal(tokens[t]);
      const double log_u = tokens[t].log_p - log_prox;
      const double behaviour = behaviour_weight(whole_sequence_ ? whole : log_prox - tokens[t].log_q);
      weights[t] = clip_.clips(log_u, tokens[t].advantage) ? 0.0 : behaviour * bounded_exp(log_u);
    }
  }

 private:
  /// Of the policy at the start of the batch, or log-linear in the weight version between the sampler and the trainer.
  double log_proximal(const DrawnToken& token) const {
    if (recomputes_) return token.log_p_old;
    if (token.start_lag >= token.lag) return token.log_p;  // the batch's first step
    if (token.start_lag <= 0.0) return token.log_q;
    return token.log_q + token.start_lag / token.lag * token.log_ratio();
  }
  double behaviour_weight(double log_k) const {
    if (action_ == "none") return 1.0;
    if (action_ == "mask") return band_.contains(log_k) ? bounded_exp(log_k) : 0.0;
    return std::clamp(bounded_exp(log_k), low_, high_);
  }

  ClipBand clip_;
  bool recomputes_, whole_sequence_;
  std::string action_;
  RatioBand band_;
  double low_, high_;
};

const bool registered = register_correction({
    .name = "decoupled",
    .summary = "PPO's clip around a proximal policy, times that policy's weight against the sampler",
    .formula = "w = f(k) u unless A > 0 and u > 1 + clip_high, or A < 0 and u < 1 - clip_low (then 0); k = prox / q, "
               "u = p / prox; f: k inside [low, high] and 0 outside (mask), k clamped to it (truncate), or 1 (none)",
    .source = "AReaL, arXiv 2505.24298; defaults of its code, with its former weight cap of 5",
    .parameters = {{.name = "clip_low", .default_value = 0.2, .meaning = "clip below 1 - clip_low", .maximum = 1.0},
                   {.name = "clip_high", .default_value = 0.2, .meaning = "clip above 1 + clip_high"},
                   {.name = "proximal",
                    .default_value = "recompute",
                    .meaning = "prox: pi_old, or log-linear between q and p by weight version (no extra pass)",
                    .texts = {"recompute", "loglinear"}},
                   {.name = "weight",
                    .default_value = "mask",
                    .meaning = "what is done with k outside [low, high]; none: k is not used",
                    .texts = {"mask", "truncate", "none"}},
                   {.name = "level",
                    .default_value = "token",
                    .meaning = "k of the token, or the product of k over the response",
                    .texts = {"token", "sequence"}},
                   {.name = "low", .default_value = 0.0, .meaning = "lower bound of k"},
                   {.name = "high", .default_value = 5.0, .meaning = "upper bound of k"}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Decoupled>(parameters); },
});

}  // namespace
}  // namespace motley::algos
