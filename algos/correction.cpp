#include "algos/correction.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "algos/nearest_name.h"

namespace motley::algos {
namespace {

std::vector<CorrectionInfo>& registry() {
  static std::vector<CorrectionInfo> infos;
  return infos;
}

}  // namespace

void Correction::restore(const std::string& state) {
  if (!state.empty()) throw std::invalid_argument("the state of a correction that keeps none is not empty");
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

std::unique_ptr<Correction> make_correction(std::string_view name, const CorrectionParameters& parameters) {
  std::vector<std::string> names;
  for (const CorrectionInfo& info : registry()) {
    names.push_back(info.name);
    if (info.name != name) continue;
    CorrectionParameters resolved = info.defaults;
    std::vector<std::string> allowed;
    for (const auto& [parameter, value] : info.defaults) allowed.push_back(parameter);
    for (const auto& [parameter, value] : parameters) {
      if (!resolved.contains(parameter)) {
        const std::string what = "parameter of correction \"" + info.name + "\":";
        throw std::invalid_argument(unknown_name_message(what, parameter, allowed));
      }
      if (value.index() != resolved[parameter].index()) {
        throw std::invalid_argument(info.name + "." + parameter + " is a " +
                                    (std::holds_alternative<double>(value) ? "text" : "number"));
      }
      const double* number = std::get_if<double>(&value);
      if (number && std::isnan(*number)) throw std::invalid_argument(info.name + "." + parameter + " is not a number");
      resolved[parameter] = value;
    }
    return info.make(resolved);
  }
  throw std::invalid_argument(unknown_name_message("correction", name, names));
}

}  // namespace motley::algos
