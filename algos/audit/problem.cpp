#include "algos/audit/problem.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace motley::algos::audit {
namespace {

constexpr double kSumTolerance = 1e-9;  // far above what sixteen additions lose, far below any effect of interest

/// log_values[begin, begin + count) as a distribution over the ids that `candidate` has (null: all).
void check_distribution(const std::string& what, const double* log_values, const uint8_t* candidate, int64_t count) {
  double sum = 0.0;
  for (int64_t v = 0; v < count; ++v) {
    const double value = log_values[v];
    const std::string where = what + "[" + std::to_string(v) + "]";
    if (std::isnan(value) || value > kSumTolerance) {
      throw std::invalid_argument(where + " is " + std::to_string(value) + ", which is no log-probability");
    }
    if (candidate && !candidate[v] && !std::isinf(value)) {
      throw std::invalid_argument(where + " has mass, but the id is no candidate there");
    }
    sum += std::exp(value);
  }
  if (!(std::abs(sum - 1.0) <= kSumTolerance)) {
    throw std::invalid_argument(what + ": the probabilities sum to " + std::to_string(sum) + ", not to 1");
  }
}

void check_gram(const Problem& problem) {
  const size_t n = problem.entries();
  if (problem.gram.empty()) return;
  if (n > kMaxGramEntries) {
    throw std::invalid_argument("gram: " + std::to_string(n) + " squared entries; at most " +
                                std::to_string(kMaxGramEntries) + " squared are kept");
  }
  if (problem.gram.size() != n * n) {
    throw std::invalid_argument("gram: " + std::to_string(problem.gram.size()) + " numbers; " + std::to_string(n) +
                                " squared are wanted, one row per (prefix, id)");
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double a = problem.gram[i * n + j], b = problem.gram[j * n + i];
      const double scale = std::sqrt(problem.gram[i * n + i] * problem.gram[j * n + j]);
      // Cauchy-Schwarz bounds an inner product, and the bound is NaN for a negative square: both are caught here.
      if (a == b && std::abs(a) <= scale * (1.0 + 1e-9) + 1e-300) continue;
      throw std::invalid_argument("gram[" + std::to_string(i) + "][" + std::to_string(j) + "] is no inner product");
    }
  }
}

}  // namespace

std::string token_text(const std::vector<int32_t>& tokens) {
  std::string text = "[";
  for (size_t i = 0; i < tokens.size(); ++i) text += (i ? ", " : "") + std::to_string(tokens[i]);
  return text + "]";
}

Tree::Tree(int64_t vocabulary, int64_t length, std::optional<int32_t> end) {
  if (vocabulary < 2 || vocabulary > 16) throw std::invalid_argument("vocabulary must be 2 to 16");
  if (length < 1 || length > 16) throw std::invalid_argument("length must be 1 to 16");
  if (end && (*end < 0 || *end >= vocabulary)) throw std::invalid_argument("end must be a token of the vocabulary");
  std::vector<Sequence> open{{}};  // of one length: prefixes with the rows before them
  for (int64_t step = 0; step < length; ++step) {
    std::vector<Sequence> longer;
    for (Sequence& prefix : open) {
      const size_t row = prefixes_.size();
      prefixes_.push_back(prefix.tokens);
      for (int32_t v = 0; v < vocabulary; ++v) {
        Sequence next = prefix;
        next.tokens.push_back(v);
        next.rows.push_back(row);
        (v == end || step + 1 == length ? sequences_ : longer).push_back(std::move(next));
      }
      if (static_cast<int64_t>(sequences_.size() + longer.size()) > kMaxSequences) {
        throw std::invalid_argument("vocabulary and length make more than " + std::to_string(kMaxSequences) +
                                    " sequences");
      }
    }
    open = std::move(longer);
  }
}

bool Problem::truncated() const { return std::find(candidate.begin(), candidate.end(), uint8_t{0}) != candidate.end(); }

void check(const Problem& problem) {
  const size_t n = problem.entries();
  if (problem.log_p.size() != n || problem.log_p_old.size() != n || problem.log_q.size() != n ||
      problem.candidate.size() != n || problem.reward.size() != problem.tree.sequences().size()) {
    throw std::invalid_argument("the arrays do not have an entry for every prefix and id, and a reward per sequence");
  }
  for (size_t row = 0; row < problem.rows(); ++row) {
    const size_t at = row * static_cast<size_t>(problem.vocabulary);
    const std::string where = "prefix " + token_text(problem.tree.prefixes()[row]) + ": ";
    const uint8_t* candidate = &problem.candidate[at];
    if (std::none_of(candidate, candidate + problem.vocabulary, [](uint8_t c) { return c != 0; })) {
      throw std::invalid_argument(where + "no candidates");
    }
    check_distribution(where + "log_p", &problem.log_p[at], nullptr, problem.vocabulary);
    check_distribution(where + "log_p_old", &problem.log_p_old[at], nullptr, problem.vocabulary);
    check_distribution(where + "log_q", &problem.log_q[at], candidate, problem.vocabulary);
    for (const std::vector<double>* trainer : {&problem.log_p, &problem.log_p_old}) {
      double mass = 0.0;
      for (int64_t v = 0; v < problem.vocabulary; ++v) {
        if (candidate[v]) mass += std::exp((*trainer)[at + static_cast<size_t>(v)]);
      }
      if (mass == 0.0) throw std::invalid_argument(where + "the trainer gives no candidate any probability");
    }
  }
  for (size_t s = 0; s < problem.reward.size(); ++s) {
    if (std::isfinite(problem.reward[s])) continue;
    throw std::invalid_argument("sequence " + token_text(problem.tree.sequences()[s].tokens) +
                                ": the reward is not finite");
  }
  if (!std::isfinite(problem.baseline)) throw std::invalid_argument("baseline is not finite");
  if (problem.record_top_k < 0 || problem.record_top_k > problem.vocabulary) {
    throw std::invalid_argument("record_top_k must be 0 (all) to the vocabulary's size");
  }
  if (problem.staleness < 0 || problem.steps_since_old < 0) {
    throw std::invalid_argument("staleness and steps_since_old must not be negative");
  }
  check_gram(problem);
}

double inner(const Problem& problem, const std::vector<double>& x, const std::vector<double>& y) {
  const size_t n = problem.entries();
  double total = 0.0;
  if (problem.gram.empty()) {
    for (size_t i = 0; i < n; ++i) total += x[i] * y[i];
    return total;
  }
  for (size_t i = 0; i < n; ++i) {
    if (x[i] == 0.0) continue;
    double row = 0.0;
    for (size_t j = 0; j < n; ++j) row += problem.gram[i * n + j] * y[j];
    total += x[i] * row;
  }
  return total;
}

}  // namespace motley::algos::audit
