#include "app/audit_problem.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/input_error.h"

namespace motley::app {
namespace {

using algos::audit::Problem;
using algos::audit::token_text;
using algos::audit::Tree;
using nlohmann::json;

constexpr const char* kFormat = "motley-audit-problem-1";
constexpr uintmax_t kMaxBytes = uintmax_t{512} << 20;

/// Something is wrong with a member: "prefixes[3].log_p" and what.
[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw std::invalid_argument(where + ": " + why);
}

json log_values(const std::vector<double>& all, size_t at, int64_t count) {
  json list = json::array();
  for (size_t v = at; v < at + static_cast<size_t>(count); ++v) {
    list.push_back(std::isinf(all[v]) ? json(nullptr) : json(all[v]));
  }
  return list;
}

const json& array(const json& value, const std::string& where, size_t size) {
  if (!value.is_array() || value.size() != size) refuse(where, "a list of " + std::to_string(size) + " is wanted");
  return value;
}

void check_keys(const json& object, const std::string& where, const std::vector<std::string>& wanted,
                const std::vector<std::string>& optional) {
  if (!object.is_object()) refuse(where, "an object is wanted");
  std::vector<std::string> allowed = wanted;
  allowed.insert(allowed.end(), optional.begin(), optional.end());
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      refuse(where, "unknown key \"" + key + "\"; allowed: " + join(allowed, ", "));
    }
  }
  for (const std::string& key : wanted) {
    if (!object.contains(key)) refuse(where, "\"" + key + "\" is missing");
  }
}

double number(const json& value, const std::string& where) {
  if (!value.is_number()) refuse(where, "a number is wanted");
  return value.get<double>();
}

int64_t integer(const json& value, const std::string& where, int64_t low, int64_t high) {
  const std::string wanted = "an integer from " + std::to_string(low) + " to " + std::to_string(high) + " is wanted";
  if (!value.is_number_integer()) refuse(where, wanted);
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) refuse(where, wanted);
  const auto result = value.get<int64_t>();
  if (result < low || result > high) refuse(where, wanted);
  return result;
}

std::vector<int32_t> tokens(const json& value, const std::string& where, int64_t vocabulary) {
  if (!value.is_array()) refuse(where, "a list of tokens is wanted");
  std::vector<int32_t> result;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = where + "[" + std::to_string(i) + "]";
    result.push_back(static_cast<int32_t>(integer(value[i], at, 0, vocabulary - 1)));
  }
  return result;
}

void read_log_values(const json& value, const std::string& where, int64_t count, double* into) {
  array(value, where, static_cast<size_t>(count));
  for (size_t v = 0; v < value.size(); ++v) {
    into[v] = value[v].is_null() ? -std::numeric_limits<double>::infinity()
                                 : number(value[v], where + "[" + std::to_string(v) + "]");
  }
}

/// body(index in `expected`, member, where) once per expected token list, whatever their order in the file.
template <class Body>
void for_each_listed(const json& list, const std::string& name, const std::vector<std::vector<int32_t>>& expected,
                     int64_t vocabulary, const char* what, Body body) {
  std::map<std::vector<int32_t>, size_t> left;
  for (size_t i = 0; i < expected.size(); ++i) left[expected[i]] = i;
  if (!list.is_array()) refuse(name, "a list is wanted");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = name + "[" + std::to_string(i) + "]";
    if (!list[i].is_object() || !list[i].contains("tokens")) refuse(where, "an object with \"tokens\" is wanted");
    const std::vector<int32_t> found = tokens(list[i]["tokens"], where + ".tokens", vocabulary);
    const auto place = left.find(found);
    if (place == left.end())
      refuse(where, token_text(found) + " is no " + what + " of the problem, or stands there twice");
    body(place->second, list[i], where);
    left.erase(place);
  }
  if (!left.empty()) refuse(name, token_text(left.begin()->first) + " is missing");
}

void read_prefix(Problem& problem, size_t row, const json& member, const std::string& where) {
  check_keys(member, where, {"tokens", "log_p", "log_q"}, {"log_p_old", "candidates"});
  const size_t at = row * static_cast<size_t>(problem.vocabulary);
  const auto read = [&](const char* key, std::vector<double>& into) {
    read_log_values(member[key], where + "." + key, problem.vocabulary, &into[at]);
  };
  read("log_p", problem.log_p);
  read("log_q", problem.log_q);
  read(member.contains("log_p_old") ? "log_p_old" : "log_p", problem.log_p_old);
  if (!member.contains("candidates")) return;
  std::fill_n(problem.candidate.begin() + static_cast<int64_t>(at), problem.vocabulary, uint8_t{0});
  for (const int32_t v : tokens(member["candidates"], where + ".candidates", problem.vocabulary)) {
    problem.candidate[at + static_cast<size_t>(v)] = 1;
  }
}

void read_gram(Problem& problem, const json& rows) {
  const size_t n = problem.entries();
  array(rows, "gram", n);
  for (size_t i = 0; i < n; ++i) {
    const std::string where = "gram[" + std::to_string(i) + "]";
    array(rows[i], where, n);
    for (size_t j = 0; j < n; ++j) {
      problem.gram.push_back(number(rows[i][j], where + "[" + std::to_string(j) + "]"));
    }
  }
}

Problem read_document(const json& document) {
  check_keys(document, "problem", {"format", "vocabulary", "length", "prefixes", "rewards"},
             {"end", "baseline", "record_top_k", "staleness", "steps_since_old", "gram"});
  if (document["format"] != kFormat) refuse("format", "\"" + std::string(kFormat) + "\" is wanted");
  const auto optional_integer = [&](const char* key, int64_t high) {
    return document.contains(key) ? integer(document[key], key, 0, high) : 0;
  };
  Problem problem;
  problem.vocabulary = integer(document["vocabulary"], "vocabulary", 2, 16);
  problem.length = integer(document["length"], "length", 1, 16);
  if (document.contains("end") && !document["end"].is_null()) {
    problem.end = static_cast<int32_t>(integer(document["end"], "end", 0, problem.vocabulary - 1));
  }
  problem.tree = Tree(problem.vocabulary, problem.length, problem.end);
  problem.baseline = document.contains("baseline") ? number(document["baseline"], "baseline") : 0.0;
  problem.record_top_k = optional_integer("record_top_k", problem.vocabulary);
  problem.staleness = optional_integer("staleness", 1000000000);
  problem.steps_since_old = optional_integer("steps_since_old", 1000000000);
  problem.log_p.resize(problem.entries());
  problem.log_p_old.resize(problem.entries());
  problem.log_q.resize(problem.entries());
  problem.candidate.assign(problem.entries(), 1);
  for_each_listed(
      document["prefixes"], "prefixes", problem.tree.prefixes(), problem.vocabulary, "prefix",
      [&](size_t row, const json& member, const std::string& where) { read_prefix(problem, row, member, where); });
  std::vector<std::vector<int32_t>> sequences;
  for (const Tree::Sequence& sequence : problem.tree.sequences()) sequences.push_back(sequence.tokens);
  problem.reward.resize(sequences.size());
  for_each_listed(document["rewards"], "rewards", sequences, problem.vocabulary, "sequence",
                  [&](size_t s, const json& member, const std::string& where) {
                    check_keys(member, where, {"tokens", "reward"}, {});
                    problem.reward[s] = number(member["reward"], where + ".reward");
                  });
  if (document.contains("gram") && !document["gram"].is_null()) read_gram(problem, document["gram"]);
  check(problem);
  return problem;
}

}  // namespace

json problem_json(const Problem& problem) {
  json prefixes = json::array(), rewards = json::array();
  for (size_t row = 0; row < problem.rows(); ++row) {
    const size_t at = row * static_cast<size_t>(problem.vocabulary);
    json prefix{{"tokens", problem.tree.prefixes()[row]},
                {"log_p", log_values(problem.log_p, at, problem.vocabulary)},
                {"log_q", log_values(problem.log_q, at, problem.vocabulary)}};
    if (problem.log_p_old != problem.log_p) prefix["log_p_old"] = log_values(problem.log_p_old, at, problem.vocabulary);
    if (problem.truncated()) {
      json ids = json::array();
      for (int64_t v = 0; v < problem.vocabulary; ++v) {
        if (problem.candidate[at + static_cast<size_t>(v)]) ids.push_back(v);
      }
      prefix["candidates"] = std::move(ids);
    }
    prefixes.push_back(std::move(prefix));
  }
  for (size_t s = 0; s < problem.reward.size(); ++s) {
    rewards.push_back({{"tokens", problem.tree.sequences()[s].tokens}, {"reward", problem.reward[s]}});
  }
  json document{{"format", kFormat},
                {"vocabulary", problem.vocabulary},
                {"length", problem.length},
                {"end", problem.end ? json(*problem.end) : json(nullptr)},
                {"baseline", problem.baseline},
                {"record_top_k", problem.record_top_k},
                {"staleness", problem.staleness},
                {"steps_since_old", problem.steps_since_old},
                {"prefixes", std::move(prefixes)},
                {"rewards", std::move(rewards)}};
  const auto n = static_cast<int64_t>(problem.entries());
  for (int64_t i = 0; !problem.gram.empty() && i < n; ++i) {
    const auto row = problem.gram.begin() + i * n;
    document["gram"].push_back(std::vector<double>(row, row + n));
  }
  return document;
}

Problem read_problem(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw InputError({file}, "is a folder", "a JSON file is wanted");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw InputError({file}, "cannot be read");
  if (std::filesystem::file_size(file, error) > kMaxBytes && !error) {
    throw InputError({file}, "is larger than 512 MiB", "no problem within the limits is");
  }
  try {
    return read_document(json::parse(in));
  } catch (const json::exception& problem) {
    throw InputError({file}, std::string("no JSON: ") + problem.what());
  } catch (const std::invalid_argument& problem) {
    throw InputError({file}, problem.what(), "motley audit --print-problem writes an example");
  }
}

}  // namespace motley::app
