#include "app/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace motley::app {
namespace {

std::optional<double> find(const algos::Metrics& metrics, const std::string& name) {
  const auto it = metrics.find(name);
  return it == metrics.end() ? std::nullopt : std::optional(it->second);
}

std::string field(const algos::Metrics& metrics, const std::string& name, const char* format) {
  const auto value = find(metrics, name);
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

std::string duration(double seconds) {
  const int64_t s = std::llround(seconds);
  return s >= 3600 ? fmt::format("{}h{:02}m", s / 3600, s / 60 % 60) : fmt::format("{}m{:02}s", s / 60, s % 60);
}

/// The alarms that are raised, separated by commas.
std::string raised_alarms(const algos::Metrics& metrics) {
  const std::string prefix = "alarm/";
  std::string names;
  for (auto it = metrics.lower_bound(prefix); it != metrics.end() && it->first.starts_with(prefix); ++it)
    if (it->second != 0.0) names += (names.empty() ? "" : ", ") + it->first.substr(prefix.size());
  return names;
}

}  // namespace

Progress::Progress(const Experiment& experiment, bool terminal, TerminalSize size)
    : experiment_(experiment), terminal_(terminal) {
  resized(size);
}

void Progress::resized(TerminalSize size) { size_ = {std::max(size.columns, 10), std::max(size.rows, 2)}; }

std::string Progress::started(int64_t parameters, int64_t vocabulary) {
  std::string groups;
  for (const auto& group : experiment_.samplers)
    groups += fmt::format("{}{} ({}{})", groups.empty() ? "" : ", ", group.name, group.profile,
                          group.replicas > 1 ? fmt::format(" x{}", group.replicas) : "");
  return fmt::format("{}: {} parameters, {} symbols, trainer {}, correction {}, samplers {}\n", experiment_.name,
                     parameters, vocabulary, experiment_.trainer.profile, experiment_.algo.correction, groups);
}

std::string Progress::warm_start(int64_t step, int64_t steps, double loss, bool cached) {
  if (cached) return "warm start: taken from the cache\n";
  const bool last = step == steps;
  open_line_ = terminal_ && !last;
  if (terminal_) return fmt::format("\rwarm start {}/{}  loss {:.4f}\x1b[K{}", step, steps, loss, last ? "\n" : "");
  return last || step % 100 == 0 ? fmt::format("warm start {}/{}  loss {:.4f}\n", step, steps, loss) : "";
}

std::string Progress::time_left(int64_t update) const {
  const int64_t done = update - first_;
  if (done < 2) return "-";
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return duration(elapsed / static_cast<double>(done) * static_cast<double>(experiment_.run.updates - update));
}

std::string Progress::plain_line(int64_t update, const algos::Metrics& metrics) const {
  std::string line = fmt::format("update {:>4}/{}  reward {}  kl {}  outside {}  staleness {}  tokens/s {}  left {}",
                                 update, experiment_.run.updates, field(metrics, "reward/mean", "{:.3f}"),
                                 field(metrics, "kl/sampler_trainer", "{:.5f}"),
                                 field(metrics, "ratio/outside", "{:.4f}"), field(metrics, "staleness/mean", "{:.2f}"),
                                 field(metrics, "time/tokens_per_second", "{:.0f}"), time_left(update));
  if (find(metrics, "eval/pass_at_1")) line += "  pass@1 " + field(metrics, "eval/pass_at_1", "{:.3f}");
  if (const std::string alarms = raised_alarms(metrics); !alarms.empty()) line += "  alarm " + alarms;
  return line + "\n";
}

/// A terminal that became narrower since has broken the block's lines; what its top has pushed off the screen stays.
std::string Progress::erase() {
  const auto columns = static_cast<size_t>(size_.columns);
  size_t rows = 0;
  for (const size_t characters : drawn_) rows += std::max<size_t>(1, (characters + columns - 1) / columns);
  drawn_.clear();
  rows = std::min(rows, static_cast<size_t>(size_.rows - 1));
  return rows > 0 ? fmt::format("\x1b[{}F\x1b[J", rows) : "";
}

/// Names of the column and a row per sampler group, in `most` lines: what does not fit is counted in the last one.
std::vector<std::string> Progress::group_rows(const algos::Metrics& metrics, size_t most) const {
  // The profiles come last, where the edge of a narrow terminal cuts them.
  constexpr const char* kRow = "{:<{}} {:>5} {:>8} {:>7} {:>9} {:>8}  {}";
  constexpr int kNumbers = 6 + 9 + 8 + 10 + 9;
  size_t width = 12;
  for (const auto& group : experiment_.samplers) width = std::max(width, group.name.size());
  width = std::min(width, static_cast<size_t>(std::max(size_.columns - kNumbers, 12)));
  std::vector<std::string> rows{
      fmt::format(kRow, "group", width, "share", "kl", "outside", "staleness", "tokens/s", "profile")};
  for (size_t i = 0; i < experiment_.samplers.size(); ++i) {
    const auto& group = experiment_.samplers[i];
    if (rows.size() + 1 == most && i + 1 < experiment_.samplers.size()) {
      rows.push_back(fmt::format("and {} more groups", experiment_.samplers.size() - i));
      break;
    }
    // A name that must be cut has its number in front, so that no two look the same.
    const std::string name = group.name.size() <= width ? group.name : fmt::format("#{} {}", i + 1, group.name);
    const std::string prefix = "group/" + group.name + "/";
    rows.push_back(fmt::format(kRow, name.substr(0, width), width, field(metrics, prefix + "share", "{:.2f}"),
                               field(metrics, prefix + "kl/sampler_trainer", "{:.5f}"),
                               field(metrics, prefix + "ratio/outside", "{:.4f}"),
                               field(metrics, prefix + "staleness/mean", "{:.2f}"),
                               field(metrics, prefix + "time/tokens_per_second", "{:.0f}"), group.profile));
  }
  return rows;
}

std::string Progress::block(int64_t update, const algos::Metrics& metrics) {
  std::vector<std::string> lines;
  const int width = std::clamp(size_.columns - 60, 8, 40);
  const auto filled = static_cast<int>(width * update / std::max<int64_t>(1, experiment_.run.updates));
  lines.push_back(fmt::format("{} [{}{}] {}/{}  left {}  tokens/s {}", experiment_.name,
                              std::string(static_cast<size_t>(filled), '#'),
                              std::string(static_cast<size_t>(width - filled), '.'), update, experiment_.run.updates,
                              time_left(update), field(metrics, "time/tokens_per_second", "{:.0f}")));
  lines.push_back(fmt::format("reward {}  pass@1 {}  kl {}  entropy {}  staleness {}",
                              field(metrics, "reward/mean", "{:.3f}"), pass_ < 0 ? "-" : fmt::format("{:.3f}", pass_),
                              field(metrics, "kl/sampler_trainer", "{:.5f}"), field(metrics, "entropy", "{:.3f}"),
                              field(metrics, "staleness/mean", "{:.2f}")));
  if (const std::string alarms = raised_alarms(metrics); !alarms.empty()) lines.push_back("alarm: " + alarms);
  const auto room = static_cast<size_t>(size_.rows - 1);  // the cursor rests on the row below the block
  if (room >= lines.size() + 2) {
    for (std::string& row : group_rows(metrics, room - lines.size())) lines.push_back(std::move(row));
  }
  std::string out = erase();
  if (lines.size() > room) lines.resize(room);
  for (std::string& line : lines) {
    if (line.size() > static_cast<size_t>(size_.columns)) line.resize(static_cast<size_t>(size_.columns));
    out += line + "\n";
    drawn_.push_back(line.size());
  }
  return out;
}

std::string Progress::update(int64_t update, const algos::Metrics& metrics) {
  if (first_ < 0) {  // the time left is extrapolated from here: the warm start and the first evaluation are over
    first_ = update;
    start_ = std::chrono::steady_clock::now();
  }
  if (const auto pass = find(metrics, "eval/pass_at_1")) pass_ = *pass;
  return terminal_ ? block(update, metrics) : plain_line(update, metrics);
}

std::string Progress::message(const std::string& text) {
  const std::string line = terminal_ && drawn_.empty() ? "\r\x1b[K" : "";  // of a warm start, or the echo of ^C
  open_line_ = false;
  return erase() + line + text + "\n";
}

std::string Progress::end() { return std::exchange(open_line_, false) ? "\n" : ""; }

}  // namespace motley::app
