// Off-policy corrections: from log-probabilities, records and advantages to cotangents on selected log-probabilities.
// A correction is a sum of named pieces: at most one ratio rule, any number of sequence filters, optionally centering.
//
// Notation (shared by every file in algos/corrections/): q is the probability that the sampler recorded when it drew,
// p the trainer's under current weights on the same support and temperature, r = p / q, A the advantage. The gradient
// of the loss with respect to log p of entry k of token t is b[k], computed here in float64 and multiplied afterwards
// by the reduction's factor. Everything here is detached: gradients flow only through the head's log p.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor/token_record.h"

namespace motley::algos {

/// What must be seen at once to compute a coefficient: one token; whole sequences (a sequence is never split across
/// micro-batches); or all samples of one optimizer step, those without an advantage included: their micro-batches are
/// scored without gradient first, and the coefficients of the whole are cut up again.
enum class Scope : uint8_t { token, sequence, batch };

/// The loss tokens of some whole sequences. Token t owns entries [offsets[t], offsets[t+1]) of the selected ids: the
/// drawn token alone, or the drawn token and every recorded id (ascending, no id twice).
struct CorrectionBatch {
  std::span<const int64_t> offsets;    // [tokens + 1]
  std::span<const int64_t> sampled;    // [tokens] entry of the drawn token
  std::span<const double> log_p;       // [entries] trainer
  std::span<const double> log_q;       // [entries] sampler; for an entry that is not in the record (the drawn token
                                       // outside its top-K head) it is the drawn token's own
  std::span<const uint8_t> in_record;  // [entries] 1: part of the recorded head or candidate set
  std::span<const double> log_p_tail;  // [tokens] log trainer mass outside the *recorded* ids; -inf: none
  std::span<const double> log_q_tail;  // [tokens] log sampler mass outside the recorded ids; -inf: none
  std::span<const double> log_p_old;   // [tokens] the drawn token's trainer log-probability at the start of the batch;
                                       // empty unless needs_old_log_probs()
  std::span<const double> advantage;   // [tokens]
  std::span<const int64_t> sequence;   // [tokens] index of the sequence; ascending
  std::span<const int64_t> sampler_group;    // [tokens] index into group_names; empty: one group without a name
  std::span<const std::string> group_names;  // of the sampler groups, for bands and caps of one group alone
  std::span<const int64_t> staleness;  // [tokens] weight versions between the token's drawing and the start of the
                                       // batch, >= 0; empty: all 0
  int64_t steps_since_old = 0;         // optimizer steps since the start of the batch; 0 on the first
  int64_t steps_per_batch = 1;         // optimizer steps that the batch is given: those of one weight version
  size_t tokens() const { return sampled.size(); }
};

/// Filled by a correction. `b` has one entry per selected id, `masked` one per token; both start as zeros.
struct Coefficients {
  explicit Coefficients(const CorrectionBatch& batch) : b(batch.log_p.size(), 0.0), masked(batch.tokens(), 0) {}
  std::vector<double> b;
  std::vector<uint8_t> masked;  // [tokens] 1: the ratio rule gave the drawn token weight 0
  /// Further numbers by name ("ais/mixing"); over all tokens of an update the learner reports <name>_median and
  /// <name>_p99, so that they do not depend on the split into micro-batches.
  std::map<std::string, std::vector<double>> samples;
};

/// Log-ratios are bounded to this before exp, so that one token cannot make a gradient infinite; metrics see the true
/// value.
inline constexpr double kLogRatioBound = 20.0;

inline double bounded_exp(double log_ratio) { return std::exp(std::clamp(log_ratio, -kLogRatioBound, kLogRatioBound)); }

/// A number, or one of the texts that a parameter allows.
using ParameterValue = std::variant<double, std::string>;
/// By name, which starts with the piece's: "mis.low". For one sampler group alone: "mis.low@GROUP".
using CorrectionParameters = std::map<std::string, ParameterValue>;
/// Of a parameter that is known to be a number, or a text.
inline double number(const CorrectionParameters& parameters, const std::string& name) {
  return std::get<double>(parameters.at(name));
}
inline const std::string& text(const CorrectionParameters& parameters, const std::string& name) {
  return std::get<std::string>(parameters.at(name));
}

class Correction {
 public:
  virtual ~Correction() = default;
  virtual Scope scope() const { return Scope::token; }
  virtual bool needs_old_log_probs() const { return false; }
  /// The least that must be recorded per token.
  virtual RecordKind needs() const { return RecordKind::sampled; }
  /// True if it clips p / pi_old, which is 1 on the first optimizer step of a batch: with one step it never acts.
  virtual bool clips_against_old() const { return false; }
  /// True if it reads the sampler's probability: false for plain GRPO and for clips of p / pi_old alone.
  virtual bool uses_sampler() const { return true; }
  /// Pure: a function of the batch alone, so that no checkpoint holds anything of a correction.
  virtual void coefficients(const CorrectionBatch& batch, Coefficients& out) const = 0;
};

class RatioRule;
class SequenceFilter;
class Centering;

/// A parameter of a piece, named without the piece.
struct ParameterInfo {
  std::string name;
  ParameterValue default_value;
  std::string meaning;
  double minimum = 0.0, maximum = std::numeric_limits<double>::infinity();  // of a number
  bool above_minimum = false;                                               // the minimum itself is out
  std::vector<std::string> texts;                                           // what a text may be
  std::string allowed() const;  // "a number of at least 0", "one of truncate, mask"
};

/// A piece: one line of `motley list corrections`, and how to make it. Exactly one of the makers is set; they get the
/// piece's own parameters, without its name and all within their ranges.
struct CorrectionInfo {
  template <class Piece>
  using Maker = std::function<std::unique_ptr<Piece>(const CorrectionParameters&)>;
  std::string name;
  std::string summary;
  std::string formula;  // in plain text, the notation above
  std::string source;   // paper or file
  std::vector<ParameterInfo> parameters;
  Maker<RatioRule> ratio_rule;
  Maker<SequenceFilter> filter;
  Maker<Centering> centering;
};

/// Registers at start-up (every file of algos/corrections/ does); refuses a name that is taken.
bool register_correction(CorrectionInfo info);
/// By name, sorted. Each is a correction on its own as well: "sc" is centering of the plain gradient.
const std::vector<CorrectionInfo>& corrections();
/// The pieces of a sum ("sc+mis"), as written. Throws std::invalid_argument for an unknown piece (with the nearest
/// name), one that is there twice, two ratio rules, and centering of weights that are no function of p / q per token.
std::vector<const CorrectionInfo*> correction_pieces(std::string_view name);
/// Every parameter of a sum with its default. Throws as correction_pieces does.
CorrectionParameters default_parameters(std::string_view name);
/// Those of `parameters` that a sum has too, of single groups as well.
CorrectionParameters parameters_of(std::string_view name, const CorrectionParameters& parameters);
/// The parameter of a sum by its full name (without a group); null: there is none.
const ParameterInfo* find_parameter(const std::vector<const CorrectionInfo*>& pieces, std::string_view name);
/// Throws std::invalid_argument, also for unknown parameters and values out of range.
std::unique_ptr<Correction> make_correction(std::string_view name, const CorrectionParameters& parameters = {});

}  // namespace motley::algos
