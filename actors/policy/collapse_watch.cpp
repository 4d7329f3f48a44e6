#include "actors/policy/collapse_watch.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <stdexcept>

namespace motley::actors {
namespace {

constexpr double kNone = -1.0;  // of numbers that are never negative
constexpr double kLowestLevel = 1e-6;
constexpr double kStandardErrors = 4.0;
constexpr int64_t kLeastRows = 4;

struct Watched {
  const char *name, *metric;
  std::string WatchOptions::*action;
};
constexpr Watched kTable[] = {
    {"reward", "reward/mean", &WatchOptions::reward},
    {"kl", "kl/k3", &WatchOptions::kl},
    {"format_error", "episode/format_error", &WatchOptions::format_error},
    {"grad_norm", "grad_norm", &WatchOptions::grad_norm},
    {"tail_ratio", "mass/log_tail_ratio_median", &WatchOptions::tail_ratio},
};

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", value);
  return buffer;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Squared standard error of the mean.
double error_squared(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double middle = mean(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return squares / (n - 1.0) / n;
}

double median(std::vector<double> values) {
  const auto half = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  if (values.size() % 2 == 1) return *half;
  return 0.5 * (*half + *std::max_element(values.begin(), half));
}

double number(std::istream& in) {
  std::string word;
  in >> word;
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || end != word.c_str() + word.size() || !std::isfinite(value))
    throw std::invalid_argument("the state of the collapse watch holds \"" + word + "\" where a number belongs");
  return value;
}

}  // namespace

CollapseWatch::CollapseWatch(WatchOptions options, int64_t warmup_updates)
    : options_(std::move(options)), warmup_updates_(warmup_updates) {
  for (Memory& memory : memories_) memory.numbers.fill(kNone);
}

void CollapseWatch::remember(Memory& memory, double value) const {
  memory.window.push_back(value);
  if (static_cast<int64_t>(memory.window.size()) > options_.window) memory.window.erase(memory.window.begin());
}

std::string CollapseWatch::reward(Memory& memory, double value) const {
  remember(memory, value);
  // A run may fall before it has filled a window: its first rows count as soon as there are enough for a spread.
  const int64_t enough = std::min(options_.window, std::max(kLeastRows, options_.window / 4));
  const auto count = static_cast<int64_t>(memory.window.size());
  if (count < enough) return "";
  auto& [best, best_error, best_count] = memory.numbers;
  const double now = mean(memory.window), error = error_squared(memory.window);
  if (best_count == kNone || now >= best) {
    best = now;
    best_error = error;
    best_count = static_cast<double>(count);
    return "";
  }
  // A few rows may be alike by chance: then the present ones' spread stands for theirs.
  const bool few = best_count >= static_cast<double>(kLeastRows) && best_count < static_cast<double>(options_.window);
  const double error_of_best = few ? std::max(best_error, error * static_cast<double>(count) / best_count) : best_error;
  const double fall = best - now;
  const bool falling = fall > options_.reward_drop * std::abs(best) &&
                       fall * fall > kStandardErrors * kStandardErrors * (error_of_best + error);
  return falling ? "reward/mean fell from " + text(best) + " at best to " + text(now) : "";
}

std::string CollapseWatch::kl(Memory& memory, double value, double staleness) const {
  remember(memory, value);
  auto& [oldest, quiet, level] = memory.numbers;
  quiet = staleness > oldest ? 0.0 : quiet + 1.0;
  oldest = std::max(oldest, staleness);
  if (!full(memory)) return "";
  const double now = median(memory.window);
  if (level == kNone) {
    if (quiet >= static_cast<double>(options_.window)) level = std::max(now, kLowestLevel);
    return "";
  }
  return now > options_.kl_factor * level ? "kl/k3 is at " + text(now) + ", its level was " + text(level) : "";
}

std::string CollapseWatch::format_error(Memory& memory, double value) const {
  remember(memory, value);
  if (!full(memory)) return "";
  const double now = mean(memory.window);
  double& armed = memory.numbers[0];
  if (now <= options_.format_error_share) armed = 1.0;
  if (armed == kNone || now <= options_.format_error_share) return "";
  return "episode/format_error is at " + text(now);
}

std::string CollapseWatch::grad_norm(Memory& memory, double value) const {
  double& level = memory.numbers[0];
  const bool leaps = level > 0.0 && value > options_.grad_norm_factor * level;
  const double before = level;
  remember(memory, value);
  if (full(memory)) level = std::max(level, median(memory.window));
  return leaps ? "grad_norm is at " + text(value) + ", its level was " + text(before) : "";
}

std::string CollapseWatch::tail_ratio(Memory& memory, double value) const {
  remember(memory, value);
  if (!full(memory)) return "";
  const double now = median(memory.window);
  if (std::abs(now) <= std::log(options_.tail_ratio_factor)) return "";
  return "the sampler's tail mass is " + text(std::exp(now)) + " x the trainer's";
}

std::string CollapseWatch::judge(size_t alarm, const algos::Metrics& row) {
  Memory& memory = memories_[alarm];
  const double value = row.at(kTable[alarm].metric);
  switch (alarm) {
    case 0:
      return reward(memory, value);
    case 1: {
      const auto version = row.find("version"), staleness = row.find("staleness/max");
      // While the learning rate rises, so does the distance between versions: full age starts after it.
      const bool settled = version == row.end() || version->second > static_cast<double>(warmup_updates_);
      if (!settled) memory.numbers[1] = kNone;
      return kl(memory, value, staleness == row.end() ? 0.0 : staleness->second);
    }
    case 2:
      return format_error(memory, value);
    case 3:
      return grad_norm(memory, value);
    default:
      return tail_ratio(memory, value);
  }
}

std::vector<Alarm> CollapseWatch::observe(algos::Metrics& row) {
  std::vector<Alarm> raised;
  if (!row.contains("samples/count")) return raised;
  for (size_t i = 0; i < kAlarms; ++i) {
    const std::string& action = options_.*kTable[i].action;
    if (action == "off") continue;
    Memory& memory = memories_[i];
    const auto found = row.find(kTable[i].metric);
    if (found != row.end() && std::isfinite(found->second)) {
      const std::string cause = judge(i, row);
      if (!cause.empty() && !memory.raised) raised.push_back({kTable[i].name, action, cause});
      memory.raised = !cause.empty();
    }
    row[std::string("alarm/") + kTable[i].name] = memory.raised ? 1.0 : 0.0;
  }
  return raised;
}

std::string CollapseWatch::state() const {
  std::string out;
  char buffer[64];
  const auto put = [&](double value) {
    std::snprintf(buffer, sizeof buffer, " %a", value);
    out += buffer;
  };
  for (size_t i = 0; i < kAlarms; ++i) {
    out += (i > 0 ? "\n" : "") + std::string(kTable[i].name);
    put(memories_[i].raised ? 1.0 : 0.0);
    for (const double value : memories_[i].numbers) put(value);
    put(static_cast<double>(memories_[i].window.size()));
    for (const double value : memories_[i].window) put(value);
  }
  return out;
}

void CollapseWatch::restore(const std::string& state) {
  std::istringstream in(state);
  std::array<Memory, kAlarms> memories;
  for (size_t i = 0; i < kAlarms; ++i) {
    std::string name;
    in >> name;
    if (name != kTable[i].name)
      throw std::invalid_argument("the state of the collapse watch holds \"" + name + "\" where " + kTable[i].name +
                                  " belongs");
    memories[i].raised = number(in) != 0.0;
    for (double& value : memories[i].numbers) value = number(in);
    for (double left = number(in); left > 0.0; left -= 1.0) remember(memories[i], number(in));
  }
  memories_ = memories;
}

}  // namespace motley::actors
