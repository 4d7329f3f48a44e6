#include "app/list_corrections.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "algos/correction.h"
#include "app/schema.h"

namespace motley::app {
namespace {

std::string kind_of(const algos::CorrectionInfo& info) {
  if (info.ratio_rule) return "ratio rule";
  return info.filter ? "filter" : "centering";
}

std::string scope_name(algos::Scope scope) {
  switch (scope) {
    case algos::Scope::token:
      return "token";
    case algos::Scope::sequence:
      return "sequence";
    case algos::Scope::batch:
      return "batch";
  }
  return "";
}

/// What must be recorded per token; under top-p or top-k the candidate set is, and serves all.
std::string record_name(RecordKind kind) {
  switch (kind) {
    case RecordKind::sampled:
      return "drawn token";
    case RecordKind::candidates:
      return "candidates";
    case RecordKind::top_k:
      return "top-K";
    case RecordKind::full:
      return "full";
  }
  return "";
}

std::vector<std::string> defaults(const algos::CorrectionInfo& info) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : algos::default_parameters(info.name)) {
    texts.push_back(name + " = " + parameter_to_toml(value));
  }
  return texts;
}

nlohmann::json parameters_json(const algos::CorrectionInfo& info) {
  nlohmann::json list = nlohmann::json::array();
  for (const algos::ParameterInfo& parameter : info.parameters) {
    list.push_back({{"name", info.name + "." + parameter.name},
                    {"default", parameter_to_toml(parameter.default_value)},
                    {"allowed", parameter_rule(parameter).allowed()},
                    {"meaning", parameter.meaning}});
  }
  return list;
}

nlohmann::json to_json(const algos::CorrectionInfo& info) {
  const auto correction = algos::make_correction(info.name);
  return {{"name", info.name},
          {"text", info.summary},
          {"kind", kind_of(info)},
          {"formula", info.formula},
          {"source", info.source},
          {"scope", scope_name(correction->scope())},
          {"records", record_name(correction->needs())},
          {"extra_pass", correction->needs_old_log_probs()},
          {"parameters", parameters_json(info)}};
}

}  // namespace

int list_corrections(bool json) {
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const algos::CorrectionInfo& info : algos::corrections()) list.push_back(to_json(info));
    std::printf("%s\n", nlohmann::json{{"corrections", list}}.dump().c_str());
    return 0;
  }
  std::string text = fmt::format("{:<11} {:<10} {:<8} {:<11} {:<10}  {}\n", "name", "kind", "scope", "records",
                                 "extra pass", "what it does");
  for (const algos::CorrectionInfo& info : algos::corrections()) {
    const auto correction = algos::make_correction(info.name);
    text += fmt::format("{:<11} {:<10} {:<8} {:<11} {:<10}  {}\n", info.name, kind_of(info),
                        scope_name(correction->scope()), record_name(correction->needs()),
                        correction->needs_old_log_probs() ? "pi_old" : "none", info.summary);
    text += fmt::format("{:>12}{}\n{:>12}{}\n", "", info.formula, "", info.source);
    if (!info.parameters.empty()) text += fmt::format("{:>12}{}\n", "", join(defaults(info), ", "));
  }
  text +=
      "\nA correction is a sum of names: at most one ratio rule (none: w = 1), any filters, optionally sc, as in\n"
      "\"sc+mis\" or \"tis+geo-mask\". b[y] = -A w for the drawn token y; r = p / q, p: trainer, q: sampler's record,\n"
      "pi_old: trainer at the start of the batch, A: advantage. Formulas: docs/corrections.md.\n";
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace motley::app
