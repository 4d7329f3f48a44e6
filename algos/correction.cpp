// The registry of pieces, and which sums of them make sense.
#include "algos/correction.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "algos/correction_piece.h"
#include "algos/nearest_name.h"

namespace motley::algos {
namespace {

std::vector<CorrectionInfo>& registry() {
  static std::vector<CorrectionInfo> infos;
  return infos;
}

[[noreturn]] void refuse(std::string_view sum, const std::string& why) {
  throw std::invalid_argument("correction \"" + std::string(sum) + "\" " + why);
}

const CorrectionInfo& find_piece(std::string_view sum, std::string_view name) {
  std::vector<std::string> names;
  for (const CorrectionInfo& info : registry()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  const std::string what = sum == name ? "correction" : "piece of correction \"" + std::string(sum) + "\":";
  throw std::invalid_argument(unknown_name_message(what, name, names));
}

bool can_be_centered(const CorrectionInfo& piece) {
  if (!piece.ratio_rule) return false;
  CorrectionParameters defaults;
  for (const ParameterInfo& info : piece.parameters) defaults[info.name] = info.default_value;
  return dynamic_cast<const TokenRule*>(piece.ratio_rule(defaults).get()) != nullptr;
}

void check_centering(std::string_view sum, const CorrectionInfo& centering, const CorrectionInfo& rule) {
  if (can_be_centered(rule)) return;
  std::string allowed;
  for (const CorrectionInfo& info : registry()) {
    if (can_be_centered(info)) allowed += (allowed.empty() ? "" : ", ") + info.name;
  }
  refuse(sum, "cannot be: " + centering.name + " subtracts an expectation over all ids, so the weight must be a " +
                  "function of p / q of each id, and that of " + rule.name + " is not; allowed with it: " + allowed);
}

}  // namespace

std::string ParameterInfo::allowed() const {
  if (std::holds_alternative<std::string>(default_value)) {
    std::string list;
    for (const std::string& one : texts) list += (list.empty() ? "one of " : ", ") + one;
    return list;
  }
  std::ostringstream range;
  range << "a number " << (above_minimum ? "above " : "of at least ") << minimum;
  if (std::isfinite(maximum)) range << " and at most " << maximum;
  return range.str();
}

bool register_correction(CorrectionInfo info) {
  const auto place = std::lower_bound(registry().begin(), registry().end(), info.name,
                                      [](const CorrectionInfo& a, const std::string& name) { return a.name < name; });
  if (place != registry().end() && place->name == info.name) {
    throw std::invalid_argument("correction \"" + info.name + "\" is registered twice");
  }
  registry().insert(place, std::move(info));
  return true;
}

const std::vector<CorrectionInfo>& corrections() { return registry(); }

std::vector<const CorrectionInfo*> correction_pieces(std::string_view sum) {
  std::vector<const CorrectionInfo*> pieces;
  const CorrectionInfo *rule = nullptr, *centering = nullptr;
  for (size_t begin = 0; begin <= sum.size();) {
    const size_t end = std::min(sum.find('+', begin), sum.size());
    const CorrectionInfo& piece = find_piece(sum, sum.substr(begin, end - begin));
    begin = end + 1;
    if (std::find(pieces.begin(), pieces.end(), &piece) != pieces.end()) refuse(sum, "names " + piece.name + " twice");
    if (piece.ratio_rule && rule) {
      refuse(sum, "has two ratio rules, " + rule->name + " and " + piece.name +
                      ": both would weight the same tokens; leave one out");
    }
    if (piece.ratio_rule) rule = &piece;
    if (piece.centering) centering = &piece;
    pieces.push_back(&piece);
  }
  if (rule && centering) check_centering(sum, *centering, *rule);
  return pieces;
}

CorrectionParameters default_parameters(std::string_view sum) {
  CorrectionParameters parameters;
  for (const CorrectionInfo* piece : correction_pieces(sum)) {
    for (const ParameterInfo& info : piece->parameters) parameters[piece->name + "." + info.name] = info.default_value;
  }
  return parameters;
}

CorrectionParameters parameters_of(std::string_view sum, const CorrectionParameters& parameters) {
  const auto pieces = correction_pieces(sum);
  CorrectionParameters own;
  for (const auto& [name, value] : parameters)
    if (find_parameter(pieces, name.substr(0, name.find('@')))) own[name] = value;
  return own;
}

const ParameterInfo* find_parameter(const std::vector<const CorrectionInfo*>& pieces, std::string_view name) {
  for (const CorrectionInfo* piece : pieces) {
    for (const ParameterInfo& info : piece->parameters) {
      if (piece->name + "." + info.name == name) return &info;
    }
  }
  return nullptr;
}

}  // namespace motley::algos
