// Which operations the mismatch comes from: mean KL(m || p) over the drawn tokens, where m is the trainer with some
// operations computed as the sampler does, each alone and one after the other.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "algos/mismatch/responses.h"

namespace motley::algos::mismatch {

/// What is switched together: an operation in all layers, or all operations of a layer.
struct Unit {
  std::string name;
  std::vector<std::pair<Operation, int64_t>> parts;
  bool differs = true;  // false: the profiles agree in every part
};
/// One per operation, in the order of the pass; one per layer (embedding first, final norm and head last).
std::vector<Unit> operation_units(const MixedWeights& weights);
std::vector<Unit> layer_units(const MixedWeights& weights);

struct Contribution {
  std::string name;
  bool differs = true;
  double alone = 0;       // KL with this unit alone switched
  double cumulative = 0;  // KL with this unit and all before it switched
  double added = 0;       // what that is more than without it; the sum over units is the whole
};
struct Attribution {
  double whole = 0;  // KL(q || p)
  std::vector<Contribution> units;
  double alone_sum = 0;
  /// whole - alone_sum: what no unit causes alone. Positive where roundings strengthen each other, negative where one
  /// unit's error hides another's.
  double interaction() const { return whole - alone_sum; }
};

/// Tells how many of how many passes are done.
using Progress = std::function<void(int64_t done, int64_t of)>;

/// `trainer` is the score of everything assigned to the trainer. Two passes per unit that differs. Tokens whose logits
/// are not finite are left out of a mean.
Attribution attribute(MixedWeights& weights, const RopeTable& table, const Responses& responses,
                      const HeadInput& trainer, const std::vector<Unit>& units, const Progress& progress = {});

/// KL of every operation switched alone in a single layer: [operation][layer], the last column for what lies outside
/// the layers. A pass for each pair that differs; 0 elsewhere.
std::vector<std::vector<double>> attribute_pairs(MixedWeights& weights, const RopeTable& table,
                                                 const Responses& responses, const HeadInput& trainer,
                                                 const Progress& progress = {});

}  // namespace motley::algos::mismatch
