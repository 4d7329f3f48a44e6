// A policy and a sampler small enough to enumerate: log-probabilities after every prefix, a reward for every finished
// sequence. `motley audit` judges corrections on it without drawing anything; what it prints of a problem is enough to
// compute every figure elsewhere.
//
// Rows are prefixes that can go on, by length and then by their tokens; sequences are those that cannot. A sequence
// ends with the end token, if there is one, and after `length` tokens at the latest.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace motley::algos::audit {

/// [1, 2, 0] as text.
std::string token_text(const std::vector<int32_t>& tokens);

/// Which prefixes and sequences there are.
class Tree {
 public:
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<size_t> rows;  // [tokens] the prefix that each token follows
  };
  Tree() = default;
  /// Throws std::invalid_argument unless 2 <= vocabulary <= 16, 1 <= length <= 16, the end token is below the
  /// vocabulary and there are at most kMaxSequences sequences.
  Tree(int64_t vocabulary, int64_t length, std::optional<int32_t> end);
  const std::vector<std::vector<int32_t>>& prefixes() const { return prefixes_; }
  const std::vector<Sequence>& sequences() const { return sequences_; }

 private:
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<Sequence> sequences_;
};
inline constexpr int64_t kMaxSequences = 20000;
/// Rows and columns of a Gram matrix: 128 MiB. A policy without one may have more entries.
inline constexpr size_t kMaxGramEntries = 4096;

struct Problem {
  int64_t vocabulary = 0, length = 0;
  std::optional<int32_t> end;
  Tree tree;
  // [rows, vocabulary], row-major. p and pi_old are over the whole vocabulary; q is over the candidates, -inf
  // elsewhere.
  std::vector<double> log_p, log_p_old, log_q;
  std::vector<uint8_t> candidate;
  std::vector<double> reward;   // [sequences]
  double baseline = 0.0;        // the advantage of a sequence is its reward minus this
  int64_t record_top_k = 0;     // ids per token that a top-K record lists; 0: all
  int64_t staleness = 0;        // weight versions between drawing and the start of the batch
  int64_t steps_since_old = 0;  // optimizer steps between pi_old and p
  std::vector<double> gram;  // [rows * vocabulary] squared: inner products of the gradients of log p of every (row, id)
                             // with respect to the policy's parameters; empty: the parameters are the rows' logits
  size_t rows() const { return tree.prefixes().size(); }
  size_t entries() const { return rows() * static_cast<size_t>(vocabulary); }
  bool truncated() const;  // some candidate set is smaller than the vocabulary
};

/// Throws std::invalid_argument naming the prefix or sequence and what is wrong: sizes, numbers that are no
/// log-probabilities, sums that differ from 1 by more than 1e-9, mass of q outside the candidates, rewards that are not
/// finite, a Gram matrix that is not symmetric.
void check(const Problem& problem);

/// <x, y> of two gradients, given as coefficients [entries] on log p (of a row: they sum to 0, or only their part that
/// does counts, when the parameters are logits).
double inner(const Problem& problem, const std::vector<double>& x, const std::vector<double>& y);

}  // namespace motley::algos::audit
