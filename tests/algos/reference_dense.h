// Batches for the references of the corrections: whole distributions over the vocabulary, in float64.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/algos/reference_tape.h"

namespace reference {

/// One loss token. Logits of ids outside the support are -inf, their q is 0.
struct DenseToken {
  std::vector<double> z;                                         // [vocabulary] trainer logits, over the temperature
  std::vector<double> log_q;                                     // [vocabulary] sampler
  std::vector<uint8_t> listed;                                   // [vocabulary] recorded ids
  double log_q_tail = -std::numeric_limits<double>::infinity();  // log of the mass outside the recorded ids; -inf: none
  size_t drawn = 0;
  double log_p_old = 0.0;  // of the drawn token, by the trainer at the start of the batch
  double advantage = 0.0;
  int64_t staleness = 0;
};
using DenseSequence = std::vector<DenseToken>;

/// -inf stays -inf.
inline std::vector<double> log_softmax(std::vector<double> z) {
  const double high = *std::max_element(z.begin(), z.end());
  double sum = 0.0;
  for (const double x : z) sum += std::exp(x - high);
  for (double& x : z) x -= high + std::log(sum);
  return z;
}

/// What a loss is written in: numbers on the tape, and constants of the record.
struct Term {
  std::vector<Scalar> logits;  // the leaves
  std::vector<Scalar> log_p;   // [vocabulary] log softmax of them
  const DenseToken* token = nullptr;
  Scalar log_py() const { return log_p[token->drawn]; }
  double log_qy() const { return token->log_q[token->drawn]; }
  double advantage() const { return token->advantage; }
  Scalar ratio() const { return exp(log_py() - log_qy()); }                  // r = p / q
  Scalar stale_ratio() const { return exp(log_py() - token->log_p_old); }    // u = p / pi_old
  double mismatch() const { return std::exp(token->log_p_old - log_qy()); }  // pi_old / q
};
using Terms = std::vector<std::vector<Term>>;  // [sequences][tokens]

inline Term make_term(const DenseToken& token) {
  Term term;
  term.token = &token;
  Tape& tape = Tape::get();
  const double high = *std::max_element(token.z.begin(), token.z.end());
  Scalar sum;
  for (const double z : token.z) {
    term.logits.push_back(tape.variable(z));
    sum = sum + exp(term.logits.back() - high);
  }
  const Scalar normalizer = log(sum) + high;
  for (const Scalar& z : term.logits) term.log_p.push_back(z - normalizer);
  return term;
}

/// d loss / d logits of every token, [tokens][vocabulary], of loss(terms).
template <class Loss>
std::vector<std::vector<double>> logit_gradients(const std::vector<DenseSequence>& batch, Loss loss) {
  Tape::get().clear();
  Terms terms;
  for (const DenseSequence& sequence : batch) {
    terms.emplace_back();
    for (const DenseToken& token : sequence) terms.back().push_back(make_term(token));
  }
  const std::vector<double> slopes = Tape::get().gradients(loss(terms));
  std::vector<std::vector<double>> result;
  for (const auto& sequence : terms) {
    for (const Term& term : sequence) {
      result.emplace_back();
      for (const Scalar& z : term.logits) result.back().push_back(slopes[static_cast<size_t>(z.node)]);
    }
  }
  return result;
}

}  // namespace reference
