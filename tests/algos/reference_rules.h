// The corrections as losses, each written from its paper's formula over whole distributions (dense.h); gradients come
// from the tape. No code of algos/ is used, nor were its formulas looked at.
#pragma once

#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>

#include "tests/algos/reference_dense.h"

namespace reference {

/// Parameters by name, as `motley list corrections` shows them.
struct Settings {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  double operator()(const std::string& name) const { return numbers.at(name); }
};

/// What a rule says about every token: the surrogate that is maximized, to be summed over tokens.
using Surrogates = std::vector<std::vector<Scalar>>;  // [sequences][tokens]
using Keep = std::vector<std::vector<double>>;        // [sequences][tokens] 1 or 0

/// A weight of the policy gradient: A w log p, with w detached. A weight of 0 drops the token, even where log p is
/// -inf.
inline Scalar policy_term(const Term& term, double weight) {
  return weight == 0.0 ? Scalar(0.0) : term.log_py() * (term.advantage() * weight);
}
template <class Weight>
Surrogates weighted(const Terms& terms, Weight weight) {
  Surrogates all;
  for (const auto& sequence : terms) {
    all.emplace_back();
    for (size_t t = 0; t < sequence.size(); ++t)
      all.back().push_back(policy_term(sequence[t], weight(sequence, sequence[t], t)));
  }
  return all;
}

/// Product of p / q over the first `count` tokens.
inline double product(const std::vector<Term>& sequence, size_t count) {
  double w = 1.0;
  for (size_t t = 0; t < count; ++t) w *= sequence[t].ratio().value;
  return w;
}
inline double product(const std::vector<Term>& sequence) { return product(sequence, sequence.size()); }

/// min(u A, clip(u, low, high) A), the smaller of the two (PPO, arXiv 1707.06347); with a dual clip not below dual A
/// where A < 0 (arXiv 1912.09729).
inline Scalar clipped(const Scalar& u, double advantage, double low, double high, double dual = 0.0) {
  const Scalar both = min(u * advantage, clip(u, low, high) * advantage);
  return advantage < 0.0 && dual > 0.0 ? max(both, dual * advantage) : both;
}

using Sequence = std::vector<Term>;
using Rule = std::function<Surrogates(const Terms&, const Settings&)>;

/// DPPO (arXiv 2602.04879): a token whose update leads further from q is dropped where p and q differ by more than
/// delta; the divergence is that of the id against all others.
inline double dppo_weight(const Settings& s, double p, double q, double advantage, double divergence) {
  const double r = p / q;
  const bool away = (advantage > 0.0 && r > 1.0) || (advantage < 0.0 && r < 1.0);
  return away && divergence > s("delta") ? 0.0 : std::min(r, s("cap"));
}
inline double bernoulli_kl(double q, double p) {
  const double rest = q == 1.0 ? 0.0 : (1.0 - q) * std::log((1.0 - q) / (1.0 - p));
  return q * std::log(q / p) + rest;
}

/// The weight of one id, for the rules that depend on its p and q alone.
inline bool is_token_rule(const std::string& rule) {
  return rule == "grpo" || rule == "token-is" || rule == "tis" || rule == "mis" || rule == "dppo-tv" ||
         rule == "dppo-kl" || rule == "power-is";
}
inline double token_weight(const std::string& rule, const Settings& s, double p, double q, double advantage) {
  const double r = p / q;
  if (rule == "dppo-tv") return dppo_weight(s, p, q, advantage, std::abs(p - q));
  if (rule == "dppo-kl") return dppo_weight(s, p, q, advantage, bernoulli_kl(q, p));
  if (rule == "token-is") return r;
  if (rule == "power-is") return std::pow(r, s("power"));  // tests/algos/example_correction.cpp
  if (rule == "tis") return std::max(std::min(r, s("cap")), s("low"));
  if (rule == "mis") return r >= s("low") && r <= s("high") ? r : 0.0;
  return 1.0;  // grpo
}

/// u: relative to pi_old, or to the sampler.
inline Scalar anchored(const Term& term, const Settings& s) {
  return s.texts.at("anchor") == "sampler" ? term.ratio() : term.stale_ratio();
}

/// M2PO (arXiv 2510.01161): of the tokens that PPO's clip may cut, those with the largest (log r)^2 are dropped until
/// the mean of the rest is at most the threshold.
inline Surrogates m2po(const Terms& terms, const Settings& s) {
  const auto constrained = [](const Term& term) {
    return term.advantage() > 0.0 ? term.ratio().value > 1.0 : term.advantage() < 0.0 && term.ratio().value < 1.0;
  };
  std::vector<double> kept;
  for (const Sequence& sequence : terms)
    for (const Term& term : sequence)
      if (constrained(term)) kept.push_back(std::pow(std::log(term.ratio().value), 2));
  std::sort(kept.begin(), kept.end());
  while (!kept.empty() &&
         std::accumulate(kept.begin(), kept.end(), 0.0) > s("threshold") * static_cast<double>(kept.size()))
    kept.pop_back();
  const double largest = kept.empty() ? -1.0 : kept.back();
  return weighted(terms, [&](const Sequence&, const Term& term, size_t) {
    const double r = term.ratio().value;
    return !constrained(term) || std::pow(std::log(r), 2) <= largest ? r : 0.0;
  });
}

/// motley's own: from no weight to the truncated one, as far as mismatch calls for it and the weights can be relied on.
inline Surrogates ais(const Terms& terms, const Settings& s) {
  double count = 0.0, k3 = 0.0, sum = 0.0, squares = 0.0;
  for (const Sequence& sequence : terms) {
    for (const Term& term : sequence) {
      const double r = term.ratio().value, c = std::min(r, s("cap"));
      count += 1.0, k3 += r - 1.0 - std::log(r), sum += c, squares += c * c;
    }
  }
  const double ess = sum * sum / (count * squares);
  const double mix = std::min(1.0, k3 / count / s("kl")) * ess / std::max(1.0, squares / count);
  return weighted(terms, [&](const Sequence&, const Term& term, size_t) {
    return 1.0 + mix * (std::min(term.ratio().value, s("cap")) - 1.0);
  });
}

/// AReaL (arXiv 2505.24298): PPO's clip around a proximal policy, times its ratio to the sampler's. The proximal policy
/// is pi_old, or lies between q and p on the line of log-probabilities by weight version.
inline Surrogates decoupled(const Terms& terms, const Settings& s, double steps) {
  Surrogates all;
  for (const Sequence& sequence : terms) {
    all.emplace_back();
    std::vector<double> prox, k;
    for (const Term& term : sequence) {
      const double log_p = term.log_py().value, log_q = term.log_qy();
      const auto behind = static_cast<double>(term.token->staleness);
      const double a = behind + steps > 0.0 ? behind / (behind + steps) : 1.0;
      prox.push_back(s.texts.at("proximal") == "recompute" ? term.token->log_p_old : log_q + a * (log_p - log_q));
      k.push_back(std::exp(prox.back() - log_q));
    }
    if (s.texts.at("level") == "sequence") {
      const double whole = std::accumulate(k.begin(), k.end(), 1.0, std::multiplies<>());
      k.assign(k.size(), whole);
    }
    for (size_t t = 0; t < sequence.size(); ++t) {
      double weight = k[t];
      if (s.texts.at("weight") == "mask" && (weight < s("low") || weight > s("high"))) weight = 0.0;
      if (s.texts.at("weight") == "none") weight = 1.0;
      if (s.texts.at("weight") == "truncate") weight = std::max(s("low"), std::min(weight, s("high")));
      const Term& term = sequence[t];
      const Scalar u = exp(term.log_py() - prox[t]);
      all.back().push_back(clipped(u, term.advantage(), 1.0 - s("clip_low"), 1.0 + s("clip_high")) * weight);
    }
  }
  return all;
}

/// A response's geometric mean of p / pi_old, clipped, in the place of every token's ratio (GSPO, arXiv 2507.18071).
inline Surrogates gspo(const Terms& terms, const Settings& s) {
  Surrogates all;
  for (const Sequence& sequence : terms) {
    Scalar sum;
    for (const Term& term : sequence) sum = sum + log(anchored(term, s));
    const Scalar ratio = exp(sum / static_cast<double>(sequence.size()));
    all.emplace_back();
    for (const Term& term : sequence)
      all.back().push_back(clipped(ratio, term.advantage(), 1.0 - s("low"), 1.0 + s("high")));
  }
  return all;
}

/// By name. `steps`: weight versions since pi_old, a step being one over the steps of a batch.
inline Surrogates surrogates(const std::string& rule, const Terms& terms, const Settings& s, double steps) {
  const auto by_sequence = [&](auto f) {
    return weighted(terms, [&](const Sequence& sequence, const Term&, size_t) { return f(product(sequence)); });
  };
  if (is_token_rule(rule))
    return weighted(terms, [&](const Sequence&, const Term& term, size_t) {
      return token_weight(rule, s, std::exp(term.log_py().value), std::exp(term.log_qy()), term.advantage());
    });
  if (rule == "seq-is") return by_sequence([](double w) { return w; });
  if (rule == "seq-tis") return by_sequence([&](double w) { return std::min(w, s("cap")); });
  if (rule == "seq-mis") return by_sequence([&](double w) { return w >= s("low") && w <= s("high") ? w : 0.0; });
  if (rule == "pg-seq-is")
    return by_sequence([&](double w) { return w <= s("cap") ? w : s.texts.at("mode") == "mask" ? 0.0 : s("cap"); });
  if (rule == "cumulative")
    return weighted(terms, [&](const Sequence& sequence, const Term&, size_t t) {
      return std::min(product(sequence, t + 1), s("cap"));
    });
  if (rule == "gspo") return gspo(terms, s);
  if (rule == "cispo")
    return weighted(
        terms, [&](const Sequence&, const Term& term, size_t) { return sg(clip(anchored(term, s), 0.0, s("cap"))); });
  if (rule == "ppo-clip") {
    Surrogates all;
    for (const Sequence& sequence : terms) {
      all.emplace_back();
      for (const Term& term : sequence)
        all.back().push_back(clipped(anchored(term, s), term.advantage(), 1.0 - s("low"), 1.0 + s("high"), s("dual")));
    }
    return all;
  }
  if (rule == "minirl")  // arXiv 2512.01374
    return weighted(terms, [&](const Sequence&, const Term& term, size_t) {
      const double u = term.stale_ratio().value;
      const bool out =
          (term.advantage() > 0.0 && u > 1.0 + s("high")) || (term.advantage() < 0.0 && u < 1.0 - s("low"));
      return out ? 0.0 : term.ratio().value;
    });
  if (rule == "m2po") return m2po(terms, s);
  if (rule == "ais") return ais(terms, s);
  if (rule == "decoupled") return decoupled(terms, s, steps);
  throw std::invalid_argument("no reference for " + rule);
}

/// Whether a filter keeps a response.
inline bool keeps(const std::string& filter, const Sequence& sequence, const Settings& s) {
  const auto n = static_cast<double>(sequence.size());
  double mean = 0.0, smallest = std::numeric_limits<double>::infinity();
  for (const Term& term : sequence) {
    mean += (term.log_py().value - term.log_qy()) / n;
    smallest = std::min(smallest, term.ratio().value);
  }
  if (filter == "geo-mask") return std::exp(mean) >= s("low") && std::exp(mean) <= s("high");
  if (filter == "veto") return smallest >= s("low");
  if (filter == "opsm") return sequence.front().advantage() >= 0.0 || -mean <= s("delta");  // arXiv 2512.02556, eq. 9
  throw std::invalid_argument("no reference for " + filter);
}

/// Score centering (arXiv 2609.20807): what is subtracted from a token's surrogate, sum_v qhat_v f(p_v / qhat_v) log
/// p_v over the whole vocabulary, weights detached. Outside the record qhat has the trainer's shape and the sampler's
/// mass.
inline Scalar centering(const Term& term, const std::string& rule, const Settings& s, const Settings& center) {
  double p_tail = 0.0;  // judged as one id
  for (size_t v = 0; v < term.log_p.size(); ++v)
    if (!term.token->listed[v]) p_tail += std::exp(term.log_p[v].value);
  const double rho = std::exp(term.token->log_q_tail) / p_tail;
  const std::string& tail = center.texts.at("tail");
  const bool modelled = std::isfinite(term.token->log_q_tail) && tail != "off" &&
                        (tail != "guard" || (rho >= center("guard_low") && rho <= center("guard_high")));
  Scalar sum;
  for (size_t v = 0; v < term.log_p.size(); ++v) {
    const double p = std::exp(term.log_p[v].value);
    const double q_hat = term.token->listed[v] ? std::exp(term.token->log_q[v]) : modelled ? rho * p : 0.0;
    if (q_hat == 0.0) continue;
    const double f = term.token->listed[v]
                         ? token_weight(rule, s, p, q_hat, term.advantage())
                         : token_weight(rule, s, p_tail, std::exp(term.token->log_q_tail), term.advantage());
    const double weight = q_hat * f;
    if (weight != 0.0) sum = sum + term.log_p[v] * (term.advantage() * weight);
  }
  return sum;
}

}  // namespace reference
