#include "algos/mismatch/attribution.h"

#include <algorithm>

namespace motley::algos::mismatch {
namespace {

/// Whether an operation is computed in a layer, or (layer == layers) outside of them.
bool exists_in(Operation operation, int64_t layer, int64_t layers) {
  const bool outside = layer == layers;
  switch (operation) {
    case Operation::embedding:
    case Operation::head:
      return outside;
    case Operation::norm:
      return true;
    default:
      return !outside;
  }
}

bool differ(const MixedWeights& weights, Operation operation) {
  return differs(operation, weights.profile(true), weights.profile(false));
}

void give(Assignment& assignment, const Unit& unit) {
  for (const auto& [operation, layer] : unit.parts) assignment.give(operation, layer);
}

/// Mean KL(m || p) over the tokens whose logits are finite.
double mean_kl(const HeadInput& mixed, const HeadInput& trainer, const Responses& responses) {
  double sum = 0.0;
  int64_t count = 0;
  for (const TokenGap& gap :
       compare_tokens(mixed, trainer, responses.ids, responses.vocabulary, responses.temperature)) {
    if (!gap.finite) continue;
    sum += gap.kl_qp;
    ++count;
  }
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

}  // namespace

std::vector<Unit> operation_units(const MixedWeights& weights) {
  std::vector<Unit> units;
  const int64_t layers = weights.config().layers;
  for (const Operation operation : operations()) {
    Unit unit{operation_name(operation), {}, differ(weights, operation)};
    for (int64_t layer = 0; layer <= layers; ++layer) {
      if (exists_in(operation, layer, layers)) unit.parts.emplace_back(operation, layer);
    }
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<Unit> layer_units(const MixedWeights& weights) {
  const int64_t layers = weights.config().layers;
  const auto unit_of = [&](const std::string& name, int64_t layer, std::initializer_list<Operation> left_out) {
    Unit unit{name, {}, false};
    for (const Operation operation : operations()) {
      if (!exists_in(operation, layer, layers)) continue;
      if (std::find(left_out.begin(), left_out.end(), operation) != left_out.end()) continue;
      unit.parts.emplace_back(operation, layer);
      unit.differs = unit.differs || differ(weights, operation);
    }
    return unit;
  };
  std::vector<Unit> units{unit_of("embedding", layers, {Operation::norm, Operation::head})};
  for (int64_t layer = 0; layer < layers; ++layer)
    units.push_back(unit_of("layer " + std::to_string(layer), layer, {}));
  units.push_back(unit_of("final norm, head", layers, {Operation::embedding}));
  return units;
}

Attribution attribute(MixedWeights& weights, const RopeTable& table, const Responses& responses,
                      const HeadInput& trainer, const std::vector<Unit>& units, const Progress& progress) {
  const auto differing = std::count_if(units.begin(), units.end(), [](const Unit& unit) { return unit.differs; });
  int64_t done = 0;
  const auto kl = [&](const Assignment& assignment) {
    const double value = mean_kl(score_responses(weights, assignment, table, responses), trainer, responses);
    if (progress) progress(++done, 2 * differing);
    return value;
  };
  Attribution result;
  Assignment so_far(weights.config().layers);
  for (const Unit& unit : units) {
    Contribution row{unit.name, unit.differs, 0.0, result.whole, 0.0};
    if (unit.differs) {
      Assignment alone(weights.config().layers);
      give(alone, unit);
      give(so_far, unit);
      row.alone = kl(alone);
      row.cumulative = kl(so_far);
      row.added = row.cumulative - result.whole;
      result.whole = row.cumulative;
      result.alone_sum += row.alone;
    }
    result.units.push_back(row);
  }
  return result;
}

std::vector<std::vector<double>> attribute_pairs(MixedWeights& weights, const RopeTable& table,
                                                 const Responses& responses, const HeadInput& trainer,
                                                 const Progress& progress) {
  const int64_t layers = weights.config().layers;
  std::vector<std::pair<Operation, int64_t>> pairs;
  for (const Operation operation : operations()) {
    if (!differ(weights, operation)) continue;
    for (int64_t layer = 0; layer <= layers; ++layer) {
      if (exists_in(operation, layer, layers)) pairs.emplace_back(operation, layer);
    }
  }
  std::vector<std::vector<double>> table_of_kl(kOperations, std::vector<double>(static_cast<size_t>(layers + 1), 0.0));
  int64_t done = 0;
  for (const auto& [operation, layer] : pairs) {
    Assignment alone(layers);
    alone.give(operation, layer);
    table_of_kl[static_cast<size_t>(operation)][static_cast<size_t>(layer)] =
        mean_kl(score_responses(weights, alone, table, responses), trainer, responses);
    if (progress) progress(++done, static_cast<int64_t>(pairs.size()));
  }
  return table_of_kl;
}

}  // namespace motley::algos::mismatch
