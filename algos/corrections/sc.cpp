// Score centering (arXiv 2609.20807): subtracts from the update of every loss token its expectation under the sampler,
//   g = A [ w_y grad log p_y - sum_v qhat_v w_v grad log p_v ],   w_v = f(p_v / q_v),
// where qhat is the record on its ids and rho p_v outside them, rho = sampler's tail mass / trainer's. As
// sum_v p_v grad log p_v = 0, the modelled tail folds into the recorded ids:
//   b[v] += A (q_v f(p_v / q_v) - alpha p_v) for recorded v,   alpha = rho f(1 / rho).
// Where f looks at more than a ratio (dppo) the tail counts as one id.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

/// Trainer tails below this mass do not raise rho further (the floor of the paper). With b in float, rho p_v cancels
/// against the softmax term only to rho * 6e-8, so an unlimited rho would be noise.
constexpr double kTailFloor = 1e-6;

/// exp(log_q_tail - log_p_tail), at most max(1, Q_tail / kTailFloor).
double bounded_tail_ratio(double log_p_tail, double log_q_tail) {
  const double limit = std::max(0.0, log_q_tail - std::log(kTailFloor));
  return bounded_exp(std::min(log_q_tail - log_p_tail, limit));
}

class ScoreCentering final : public Centering {
 public:
  explicit ScoreCentering(const CorrectionParameters& parameters)
      : tail_(text(parameters, "tail")), guard_(number(parameters, "guard_low"), number(parameters, "guard_high")) {}

  void add(const CorrectionBatch& batch, size_t token, const TokenRule& rule, std::span<double> b) const override {
    const double a = batch.advantage[token];
    const double alpha = tail_weight(batch.log_p_tail[token], batch.log_q_tail[token], a, rule);
    const auto last = static_cast<size_t>(batch.offsets[token + 1]);
    for (auto k = static_cast<size_t>(batch.offsets[token]); k < last; ++k) {
      const double log_p = batch.log_p[k], log_q = batch.log_q[k];
      if (!batch.in_record[k] || std::isnan(log_p)) continue;
      double weighted = 0.0;  // q f(p / q); 0 where both are 0
      if (!std::isnan(log_p - log_q)) {
        const TokenWeight w = rule.weight(log_p, log_q, a);
        weighted = w.is_ratio ? std::exp(log_p) : w.value * std::exp(log_q);
      }
      b[k] += a * (alpha != 0.0 ? weighted - alpha * std::exp(log_p) : weighted);
    }
  }

 private:
  /// alpha
  double tail_weight(double log_p_tail, double log_q_tail, double advantage, const TokenRule& rule) const {
    if (tail_ == "off" || !(log_q_tail > -kUnlimited) || std::isnan(log_p_tail)) return 0.0;
    if (tail_ == "guard" && !guard_.contains(log_q_tail - log_p_tail)) return 0.0;
    const TokenWeight w = rule.weight(log_p_tail, log_q_tail, advantage);
    return w.is_ratio ? 1.0 : bounded_tail_ratio(log_p_tail, log_q_tail) * w.value;
  }

  std::string tail_;
  RatioBand guard_;
};

const bool registered = register_correction({
    .name = "sc",
    .summary = "score centering: removes the drift that the sampler's mismatch adds at every prefix",
    .formula = "b[v] += A (q_v f(r_v) - alpha p_v) for recorded v; f: the weight of the rule beside it (1 alone), "
               "alpha = rho f(1 / rho), rho = sampler's tail mass / trainer's",
    .source = "arXiv 2609.20807",
    .parameters = {{.name = "tail",
                    .default_value = "trainer",
                    .meaning =
                        "what stands outside the record: the trainer's shape with the sampler's mass; nothing; or "
                        "the former while rho is inside the guard's band",
                    .texts = {"trainer", "off", "guard"}},
                   {.name = "guard_low", .default_value = 0.2, .meaning = "with tail = \"guard\": smallest rho"},
                   {.name = "guard_high", .default_value = 2.0, .meaning = "with tail = \"guard\": largest rho"}},
    .centering = [](const CorrectionParameters& parameters) { return std::make_unique<ScoreCentering>(parameters); },
});

}  // namespace
}  // namespace motley::algos
