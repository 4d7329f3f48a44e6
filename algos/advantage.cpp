#include "algos/advantage.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "algos/nearest_name.h"

namespace motley::algos {
namespace {

void check_name(std::string_view what, std::string_view name, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw std::invalid_argument(unknown_name_message(what, name, names));
  }
}

}  // namespace

const std::vector<std::string>& advantage_names() {
  static const std::vector<std::string> names{"dr_grpo", "grpo", "rloo"};
  return names;
}

std::vector<double> advantages(std::string_view name, std::span<const double> rewards) {
  check_name("advantage", name, advantage_names());
  const double n = static_cast<double>(rewards.size());
  if (rewards.size() < 2) {
    throw std::invalid_argument("advantage \"" + std::string(name) +
                                "\" compares the samples of a group and needs at least 2, got " +
                                std::to_string(rewards.size()));
  }
  std::vector<double> result(rewards.size(), 0.0);
  // Equal rewards give exactly 0: n times a number, divided by n, need not give the number back.
  const auto [low, high] = std::minmax_element(rewards.begin(), rewards.end());
  if (*low == *high) return result;

  const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0);
  const double mean = sum / n;
  double scale = 1.0;
  if (name == "grpo") {
    double squares = 0.0;
    for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
    scale = 1.0 / (std::sqrt(squares / (n - 1.0)) + 1e-6);
  } else if (name == "rloo") {
    scale = n / (n - 1.0);  // R - (sum - R) / (n - 1) = (R - mean) n / (n - 1)
  }
  for (size_t i = 0; i < rewards.size(); ++i) result[i] = (rewards[i] - mean) * scale;
  return result;
}

const std::vector<std::string>& reduction_names() {
  static const std::vector<std::string> names{"constant", "prompt_mean", "sequence_mean", "token_mean"};
  return names;
}

std::vector<double> reduction_factors(std::string_view name, std::span<const int64_t> tokens,
                                      std::span<const uint64_t> groups, int64_t max_tokens) {
  check_name("reduction", name, reduction_names());
  if (tokens.size() != groups.size()) throw std::invalid_argument("reduction: one group per sample");
  std::vector<double> denominators(tokens.size());
  if (name == "constant") {
    if (max_tokens < 1) throw std::invalid_argument("reduction \"constant\" needs max_tokens of at least 1");
    denominators.assign(tokens.size(), static_cast<double>(tokens.size()) * static_cast<double>(max_tokens));
  } else if (name == "token_mean") {
    const int64_t total = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    denominators.assign(tokens.size(), static_cast<double>(total));
  } else {
    // Means of means: over units (a sample, or a prompt's samples) that have a token at all.
    std::map<uint64_t, int64_t> unit_tokens;
    const auto unit = [&](size_t i) { return name == "prompt_mean" ? groups[i] : uint64_t{i}; };
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] > 0) unit_tokens[unit(i)] += tokens[i];
    }
    const double units = static_cast<double>(unit_tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] > 0) denominators[i] = static_cast<double>(unit_tokens[unit(i)]) * units;
    }
  }
  std::vector<double> factors(tokens.size(), 0.0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] > 0) factors[i] = 1.0 / denominators[i];
  }
  return factors;
}

}  // namespace motley::algos
