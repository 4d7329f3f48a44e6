#include "app/experiment_correction.h"

#include <fmt/format.h>

#include "app/schema.h"

namespace motley::app {
namespace {

algos::ParameterValue parameter_value(const Value& value) {
  if (const double* number = std::get_if<double>(&value)) return *number;
  return std::get<std::string>(value);
}

/// One that ends in the given name ("low": "mis.low"), or else the nearest.
std::string nearest_parameter(const std::string& name, const std::vector<std::string>& names) {
  for (const std::string& known : names) {
    if (known.ends_with("." + name)) return known;
  }
  return nearest_name(name, names);
}

}  // namespace

algos::CorrectionParameters correction_defaults(const std::string& correction, const Position& where) {
  try {
    return algos::default_parameters(correction);
  } catch (const std::invalid_argument& error) {
    throw InputError(where, error.what());
  }
}

algos::CorrectionParameters read_correction_parameters(const Node& table, const std::string& path,
                                                       const std::string& correction, KeyPositions& keys) {
  const auto pieces = algos::correction_pieces(correction);
  std::vector<std::string> names;
  for (const auto& [name, value] : algos::default_parameters(correction)) names.push_back(name);
  algos::CorrectionParameters parameters;
  const auto read = [&](const Member& member, const std::string& name) {
    const algos::ParameterInfo* parameter = algos::find_parameter(pieces, name);
    if (!parameter) {
      throw InputError(member.at, fmt::format("unknown parameter '{}' of correction '{}'", name, correction),
                       names.empty() ? "it has none" : "allowed: " + join(names, ", "), nearest_parameter(name, names));
    }
    const std::string key = path + "." + name;
    parameters[name] = parameter_value(parameter_rule(*parameter).read(member.value, key));
    keys.set(key, member.value.at);
  };
  for (const Member& member : table.members) {
    if (member.value.kind != Node::Kind::table) {
      read(member, member.key);
      continue;
    }
    for (const Member& own : member.value.members) read(own, member.key + "." + own.key);
  }
  return parameters;
}

}  // namespace motley::app
