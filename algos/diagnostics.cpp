#include "algos/diagnostics.h"

#include <algorithm>
#include <cmath>

#include "algos/metric_values.h"

namespace motley::algos {
namespace {

const RatioInterval kDiagnosticBand(0.2, 5.0);  // the published study's share of extreme ratios: |log r| > ln 5

/// (sum w)^2 / (count sum w^2), between 1 / count and 1; NaN if every weight is 0.
double effective_share(const ExactSum& sum, const ExactSum& squares, int64_t count) {
  const ScaledDouble first = sum.scaled(), second = squares.scaled();
  const double mantissa = first.mantissa / second.mantissa * first.mantissa / static_cast<double>(count);
  return ScaledDouble{mantissa, 2 * first.exponent - second.exponent}.value();
}

}  // namespace

RatioInterval::RatioInterval(double low, double high) : log_low(std::log(low)), log_high(std::log(high)) {}

void Diagnostics::add(const TokenScore& token, const RatioInterval& band) {
  ++tokens_;
  const double x = token.log_p - token.log_q;  // exactly 0 for equal log-probabilities
  const ScaledDouble r = scaled_exp(x);
  const ScaledDouble r_squared{r.mantissa * r.mantissa, 2 * r.exponent};
  log_ratio_.add(x);
  ratio_.add(r);
  ratio_squared_.add(r_squared);
  if (r.exponent == 0) {  // expm1: no cancellation near r = 1
    k3_.add(std::expm1(x) - x);
    reverse_.add((r.mantissa == 0.0 ? 0.0 : r.mantissa * x) - std::expm1(x));
  } else {
    k3_.add(r);
    k3_.add(-1.0 - x);
    reverse_.add({r.mantissa * (x - 1.0), r.exponent});
    reverse_.add(1.0);
  }
  outside_ += kDiagnosticBand.contains(x) ? 0 : 1;
  if (band.contains(x)) {
    banded_.add(r);
    banded_squared_.add(r_squared);
  } else {
    ++outside_band_;
  }
  masked_ += token.masked ? 1 : 0;
  largest_log_ratio_ = std::max(largest_log_ratio_, x);
  const double difference = std::exp(token.log_p) - std::exp(token.log_q);
  difference_.add(difference);
  smallest_difference_ = std::min(smallest_difference_, difference);
  largest_difference_ = std::max(largest_difference_, difference);
  entropy_.add(token.entropy);
  if (!token.has_tail || std::isnan(token.log_p_tail)) return;
  sampler_tail_.add(std::exp(token.log_q_tail));
  trainer_tail_.add(std::exp(token.log_p_tail));
  log_tail_ratios_.push_back(token.log_q_tail - token.log_p_tail);
}

void Diagnostics::close_sample() {
  if (tokens_ == 0) return;
  sample_log_ratio_.add(log_ratio_.mean(tokens_));
  ++samples_;
}

Diagnostics& Diagnostics::operator+=(const Diagnostics& more) {
  tokens_ += more.tokens_;
  samples_ += more.samples_;
  outside_ += more.outside_;
  outside_band_ += more.outside_band_;
  masked_ += more.masked_;
  for (ExactSum Diagnostics::*sum :
       {&Diagnostics::log_ratio_, &Diagnostics::reverse_, &Diagnostics::k3_, &Diagnostics::ratio_,
        &Diagnostics::ratio_squared_, &Diagnostics::banded_, &Diagnostics::banded_squared_, &Diagnostics::difference_,
        &Diagnostics::entropy_, &Diagnostics::sample_log_ratio_, &Diagnostics::sampler_tail_,
        &Diagnostics::trainer_tail_})
    this->*sum += more.*sum;
  log_tail_ratios_.insert(log_tail_ratios_.end(), more.log_tail_ratios_.begin(), more.log_tail_ratios_.end());
  largest_log_ratio_ = std::max(largest_log_ratio_, more.largest_log_ratio_);
  smallest_difference_ = std::min(smallest_difference_, more.smallest_difference_);
  largest_difference_ = std::max(largest_difference_, more.largest_difference_);
  return *this;
}

void Diagnostics::write(Metrics& metrics, const std::string& prefix) const {
  if (tokens_ == 0) return;
  metrics[prefix + "tokens"] = static_cast<double>(tokens_);
  write_ratios(metrics, prefix);
  metrics[prefix + "p_minus_q/mean"] = representable(difference_.mean(tokens_));
  metrics[prefix + "p_minus_q/min"] = representable(smallest_difference_);
  metrics[prefix + "p_minus_q/max"] = representable(largest_difference_);
  metrics[prefix + "entropy"] = representable(entropy_.mean(tokens_));
  if (samples_ > 0) metrics[prefix + "log_ppl_gap"] = representable(-1000.0 * sample_log_ratio_.mean(samples_));
  write_tails(metrics, prefix);
}

void Diagnostics::write_ratios(Metrics& metrics, const std::string& prefix) const {
  const auto share = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(tokens_); };
  ExactSum chi2 = ratio_squared_;
  chi2.add(-static_cast<double>(tokens_));
  metrics[prefix + "kl/sampler_trainer"] = representable(-log_ratio_.mean(tokens_));
  metrics[prefix + "kl/trainer_sampler"] = representable(reverse_.mean(tokens_));
  metrics[prefix + "kl/k3"] = representable(k3_.mean(tokens_));
  metrics[prefix + "ratio/outside"] = share(outside_);
  metrics[prefix + "ratio/outside_band"] = share(outside_band_);
  metrics[prefix + "ratio/masked"] = share(masked_);
  metrics[prefix + "ratio/max"] = representable(std::exp(largest_log_ratio_));
  metrics[prefix + "ratio/chi2"] = representable(chi2.mean(tokens_));
  metrics[prefix + "ess"] = effective_share(ratio_, ratio_squared_, tokens_);
  metrics[prefix + "ess_in_band"] = outside_band_ == tokens_ ? 0.0 : effective_share(banded_, banded_squared_, tokens_);
}

void Diagnostics::write_tails(Metrics& metrics, const std::string& prefix) const {
  if (log_tail_ratios_.empty()) return;
  const auto count = static_cast<int64_t>(log_tail_ratios_.size());
  const double sampler = sampler_tail_.mean(count), trainer = trainer_tail_.mean(count);
  metrics[prefix + "mass/sampler_tail"] = sampler;
  metrics[prefix + "mass/trainer_tail"] = trainer;
  metrics[prefix + "mass/sampler_head"] = 1.0 - sampler;
  metrics[prefix + "mass/trainer_head"] = 1.0 - trainer;
  std::vector<double> ratios = log_tail_ratios_;
  metrics[prefix + "mass/log_tail_ratio_median"] = representable(quantile(ratios, 0.5));
  metrics[prefix + "mass/log_tail_ratio_p99"] = representable(quantile(ratios, 0.99));
}

}  // namespace motley::algos
