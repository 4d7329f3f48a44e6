// A correction as a sum of pieces: b[y] = -A w for the drawn token, plus the centering terms.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algos/correction_piece.h"

namespace motley::algos {

/// One instance of every piece of a sum.
struct PieceSet {
  std::unique_ptr<RatioRule> rule;  // always there
  std::vector<std::unique_ptr<SequenceFilter>> filters;
  std::unique_ptr<Centering> centering;  // then `rule` is a TokenRule
};

struct ComposedWeights;

class ComposedCorrection final : public Correction {
 public:
  /// `of_group`: pieces of the sampler groups that have parameters of their own.
  ComposedCorrection(PieceSet pieces, std::map<std::string, PieceSet> of_group)
      : pieces_(std::move(pieces)), of_group_(std::move(of_group)) {}

  Scope scope() const override;
  RecordKind needs() const override { return pieces_.centering ? RecordKind::top_k : RecordKind::sampled; }
  bool needs_old_log_probs() const override { return pieces_.rule->needs_old_log_probs(); }
  bool clips_against_old() const override { return pieces_.rule->clips_against_old(); }
  bool uses_sampler() const override {
    return pieces_.rule->uses_sampler() || pieces_.centering || !pieces_.filters.empty();
  }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override;

 private:
  const PieceSet& pieces_of(const CorrectionBatch& batch, size_t token) const;
  void weigh_sequence(const CorrectionBatch& batch, size_t first, size_t last, ComposedWeights& all) const;

  PieceSet pieces_;
  std::map<std::string, PieceSet> of_group_;
};

}  // namespace motley::algos
