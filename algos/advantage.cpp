#include "algos/advantage.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
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
  static const std::vector<std::string> names{"dr_grpo", "grpo", "maxrl", "reinforce", "rloo"};
  return names;
}

bool compares_group(std::string_view advantage) { return advantage != "reinforce"; }

const std::vector<std::string>& advantage_level_names() {
  static const std::vector<std::string> names{"episode", "turn"};
  return names;
}

bool compares_returns(std::string_view advantage) { return compares_group(advantage) && advantage != "maxrl"; }

std::vector<double> advantages(std::string_view name, std::span<const double> rewards, double baseline) {
  check_name("advantage", name, advantage_names());
  std::vector<double> result(rewards.begin(), rewards.end());
  if (!compares_group(name)) {
    for (double& value : result) value -= baseline;
    return result;
  }
  const double n = static_cast<double>(rewards.size());
  if (rewards.size() < 2) {
    throw std::invalid_argument("advantage \"" + std::string(name) +
                                "\" compares the samples of a group and needs at least 2, got " +
                                std::to_string(rewards.size()));
  }
  const auto [low, high] = std::minmax_element(rewards.begin(), rewards.end());
  if (name == "maxrl" && *low < 0.0) {
    throw std::invalid_argument("advantage \"maxrl\" divides by the mean reward and needs rewards of at least 0, got " +
                                std::to_string(*low));
  }
  // Equal rewards give exactly 0: n times a number, divided by n, need not give the number back.
  if (*low == *high) return std::vector<double>(rewards.size(), 0.0);

  const double sum = std::accumulate(rewards.begin(), rewards.end(), 0.0);
  const double mean = sum / n;
  double scale = 1.0;
  if (name == "grpo") {
    double squares = 0.0;
    for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
    scale = 1.0 / (std::sqrt(squares / (n - 1.0)) + 1e-6);
  } else if (name == "rloo") {
    scale = n / (n - 1.0);  // R - (sum - R) / (n - 1) = (R - mean) n / (n - 1)
  } else if (name == "maxrl") {
    scale = 1.0 / mean;  // R <= sum, so that no advantage exceeds n - 1
  }
  for (double& value : result) value = (value - mean) * scale;
  return result;
}

MovingBaseline::MovingBaseline(double decay) : decay_(decay) {
  if (!(decay >= 0.0 && decay < 1.0)) throw std::invalid_argument("the baseline's decay must be in [0, 1)");
}

void MovingBaseline::add(double batch_mean) {
  average_ = average_ ? decay_ * *average_ + (1.0 - decay_) * batch_mean : batch_mean;
}

std::string MovingBaseline::state() const {
  if (!average_) return "";
  char text[64];
  std::snprintf(text, sizeof text, "%a", *average_);  // comes back bit for bit
  return text;
}

void MovingBaseline::restore(const std::string& state) {
  average_.reset();
  if (state.empty()) return;
  char* end = nullptr;
  const double value = std::strtod(state.c_str(), &end);
  if (end != state.c_str() + state.size() || !std::isfinite(value))
    throw std::invalid_argument("the moving baseline is no number: \"" + state + "\"");
  average_ = value;
}

const std::vector<std::string>& reduction_names() {
  static const std::vector<std::string> names{"constant", "prompt_mean", "sequence_mean", "token_mean"};
  return names;
}

const std::vector<std::string>& denominator_names() {
  static const std::vector<std::string> names{"kept", "renormalized"};
  return names;
}

std::vector<double> reduction_factors(std::string_view name, std::span<const int64_t> tokens,
                                      std::span<const int64_t> counted, std::span<const uint64_t> groups,
                                      int64_t max_tokens) {
  check_name("reduction", name, reduction_names());
  if (tokens.size() != groups.size() || tokens.size() != counted.size())
    throw std::invalid_argument("reduction: one group and one count per sample");
  std::vector<double> denominators(tokens.size(), 0.0);
  if (name == "constant") {
    if (max_tokens < 1) throw std::invalid_argument("reduction \"constant\" needs max_tokens of at least 1");
    denominators.assign(tokens.size(), static_cast<double>(tokens.size()) * static_cast<double>(max_tokens));
  } else if (name == "token_mean") {
    const int64_t total = std::accumulate(counted.begin(), counted.end(), int64_t{0});
    denominators.assign(tokens.size(), static_cast<double>(total));
  } else {
    // Means of means: over units (a sample, or a prompt's samples) of which a token is counted at all.
    std::map<uint64_t, int64_t> unit_tokens;
    const auto unit = [&](size_t i) { return name == "prompt_mean" ? groups[i] : uint64_t{i}; };
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (counted[i] > 0) unit_tokens[unit(i)] += counted[i];
    }
    const double units = static_cast<double>(unit_tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto found = unit_tokens.find(unit(i));
      if (found != unit_tokens.end()) denominators[i] = static_cast<double>(found->second) * units;
    }
  }
  std::vector<double> factors(tokens.size(), 0.0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] > 0 && denominators[i] > 0.0) factors[i] = 1.0 / denominators[i];
  }
  return factors;
}

}  // namespace motley::algos
