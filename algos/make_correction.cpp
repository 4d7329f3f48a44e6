// From a name and parameters to a correction: every value is checked, and sampler groups with parameters of their own
// get pieces of their own.
#include <cmath>
#include <set>
#include <stdexcept>

#include "algos/composed_correction.h"
#include "algos/correction.h"
#include "algos/nearest_name.h"

namespace motley::algos {
namespace {

using Pieces = std::vector<const CorrectionInfo*>;

/// "mis.high@h100" is parameter mis.high of group h100.
std::string base_name(const std::string& name) { return name.substr(0, name.find('@')); }
std::string group_name(const std::string& name) { return name.substr(std::min(name.find('@'), name.size() - 1) + 1); }
bool names_group(const std::string& name) { return name.find('@') != std::string::npos; }

void check_number(const std::string& name, const ParameterInfo& info, double value) {
  if (std::isnan(value)) throw std::invalid_argument(name + " is not a number");
  const bool above = info.above_minimum ? value > info.minimum : value >= info.minimum;
  if (!above || value > info.maximum) {
    throw std::invalid_argument(name + " is out of its range; allowed: " + info.allowed());
  }
}

void check_value(const std::string& name, const ParameterInfo& info, const ParameterValue& value) {
  if (value.index() != info.default_value.index()) {
    throw std::invalid_argument(name + " is to be " + info.allowed());
  }
  if (const std::string* given = std::get_if<std::string>(&value)) {
    if (std::find(info.texts.begin(), info.texts.end(), *given) == info.texts.end()) {
      throw std::invalid_argument(unknown_name_message(name, *given, info.texts));
    }
  } else {
    check_number(name, info, std::get<double>(value));
  }
}

void check_parameters(std::string_view sum, const Pieces& pieces, const CorrectionParameters& parameters) {
  for (const auto& [name, value] : parameters) {
    const ParameterInfo* info = find_parameter(pieces, base_name(name));
    if (!info) {
      std::vector<std::string> allowed;
      for (const auto& [known, unused] : default_parameters(sum)) allowed.push_back(known);
      const std::string what = "parameter of correction \"" + std::string(sum) + "\":";
      throw std::invalid_argument(unknown_name_message(what, name, allowed));
    }
    check_value(name, *info, value);
    if (names_group(name) && std::holds_alternative<std::string>(value)) {
      throw std::invalid_argument(base_name(name) + " cannot differ between sampler groups: only numbers can");
    }
  }
}

/// `parameters` holds every parameter of every piece, by full name.
PieceSet make_pieces(const Pieces& pieces, const CorrectionParameters& parameters) {
  PieceSet set;
  for (const CorrectionInfo* piece : pieces) {
    CorrectionParameters own;
    for (const ParameterInfo& info : piece->parameters) own[info.name] = parameters.at(piece->name + "." + info.name);
    try {
      if (piece->ratio_rule) set.rule = piece->ratio_rule(own);
      if (piece->filter) set.filters.push_back(piece->filter(own));
      if (piece->centering) set.centering = piece->centering(own);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("parameters of " + piece->name + ": " + error.what());
    }
  }
  if (!set.rule) set.rule = correction_pieces("grpo").front()->ratio_rule({});
  return set;
}

}  // namespace

std::unique_ptr<Correction> make_correction(std::string_view sum, const CorrectionParameters& parameters) {
  const Pieces pieces = correction_pieces(sum);
  check_parameters(sum, pieces, parameters);
  CorrectionParameters common = default_parameters(sum);
  std::set<std::string> groups;
  for (const auto& [name, value] : parameters) {
    if (names_group(name))
      groups.insert(group_name(name));
    else
      common[name] = value;
  }
  PieceSet set = make_pieces(pieces, common);
  if (!groups.empty() && set.rule->scope() == Scope::batch) {
    throw std::invalid_argument("correction \"" + std::string(sum) +
                                "\" weighs all sampler groups together: none can have parameters of its own");
  }
  std::map<std::string, PieceSet> of_group;
  for (const std::string& group : groups) {
    CorrectionParameters own = common;
    for (const auto& [name, value] : parameters) {
      if (names_group(name) && group_name(name) == group) own[base_name(name)] = value;
    }
    of_group.emplace(group, make_pieces(pieces, own));
  }
  return std::make_unique<ComposedCorrection>(std::move(set), std::move(of_group));
}

}  // namespace motley::algos
