// The live display on terminals that are small, change their size, or show names that are alike.
#include "app/progress.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

namespace motley::app {
namespace {

/// What a terminal keeps of text and the control sequences that the display uses: up (F), erase below (J), erase right
/// (K). Lines that are wider than the screen are broken, anew when its width changes, as most terminals do.
class Screen {
 public:
  explicit Screen(TerminalSize size) : size_(size) {}
  void resize(TerminalSize size) { size_ = size; }
  void put(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') {
        lines_.emplace_back();
      } else if (text[i] == '\r') {
        lines_.back().clear();  // always overwritten from its start
      } else if (text.compare(i, 2, "\x1b[") == 0) {
        size_t end = i + 2;
        while (std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
        if (text[end] == 'F') up(std::stoul(text.substr(i + 2, end - i - 2)));
        i = end;
      } else {
        lines_.back() += text[i];
      }
    }
  }
  /// Lines that hold `part`, those that have left the screen at its top included.
  int64_t count(const std::string& part) const {
    return std::count_if(lines_.begin(), lines_.end(),
                         [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

 private:
  size_t rows_of(const std::string& line) const {
    const auto columns = static_cast<size_t>(size_.columns);
    return std::max<size_t>(1, (line.size() + columns - 1) / columns);
  }
  /// To the start of a row, which ends at the top of the screen; all below is erased next.
  void up(size_t rows) {
    rows = std::min(rows, static_cast<size_t>(size_.rows - 1));
    while (rows > 0 && lines_.size() > 1) {
      lines_.pop_back();
      const size_t high = rows_of(lines_.back());
      if (high > rows) {  // inside a broken line
        lines_.back().resize((high - rows) * static_cast<size_t>(size_.columns));
        return;
      }
      rows -= high;
      lines_.back().clear();
    }
  }
  TerminalSize size_;
  std::vector<std::string> lines_{""};
};

Experiment with_groups(int64_t count, const std::string& prefix) {
  Experiment experiment;
  experiment.name = "trial";
  experiment.run.updates = 100;
  for (int64_t i = 0; i < count; ++i)
    experiment.samplers.push_back({.name = prefix + std::to_string(i), .profile = "h100-fp8-channel-accumulate14"});
  return experiment;
}

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("more sampler groups than the terminal has rows: those that fit, a count, and nothing drawn twice") {
  const TerminalSize size{80, 10};
  Progress progress(with_groups(30, "group-"), true, size);
  Screen screen(size);
  screen.put("run folder\n");
  for (int64_t update = 1; update <= 20; ++update) {
    const std::string text = progress.update(update, {{"reward/mean", 0.5}});
    CHECK(lines_of(text) == 9);  // the cursor is on the tenth
    screen.put(text);
  }
  CHECK(screen.count("trial [") == 1);
  CHECK(screen.count("staleness tokens/s") == 1);
  CHECK(screen.count("group-4 ") == 1);
  CHECK(screen.count("and 25 more groups") == 1);
  CHECK(screen.count("run folder") == 1);

  for (const int rows : {1, 2, 3, 4, 5, 6}) {
    CAPTURE(rows);
    Progress low(with_groups(3, "group-"), true, {80, rows});
    Screen small({80, std::max(rows, 2)});
    for (int64_t update = 1; update <= 5; ++update) small.put(low.update(update, {}));
    CHECK(small.count("trial [") == 1);
    CHECK(small.count("more groups") == (rows >= 5 ? 1 : 0));
  }
}

TEST_CASE("a terminal that changes its size leaves one display") {
  TerminalSize size{120, 60};
  Progress progress(with_groups(3, "group-"), true, size);
  Screen screen(size);
  screen.put("run folder\n");
  int64_t update = 0;
  for (const int columns : {120, 50, 49, 200, 13, 120}) {
    CAPTURE(columns);
    size.columns = columns;
    screen.resize(size);
    progress.resized(size);
    for (int again = 0; again < 2; ++again) {
      screen.put(progress.update(++update, {{"reward/mean", 0.5}}));
      CHECK(screen.count("trial [") == 1);
      CHECK(screen.count("group-") == 3);
      CHECK(screen.count("run folder") == 1);
    }
  }
  // Rows that a lower screen has pushed out of reach stay, but no more of them come.
  size.rows = 4;
  screen.resize(size);
  progress.resized(size);
  screen.put(progress.update(++update, {}));
  const int64_t left = screen.count("trial [");
  CHECK(left <= 2);
  for (int again = 0; again < 5; ++again) screen.put(progress.update(++update, {}));
  CHECK(screen.count("trial [") == left);
}

TEST_CASE("no two sampler groups look the same on the live display") {
  const std::string alike = "quantized-nvfp4-", longer = std::string(60, 'x') + "-";
  for (const std::string& prefix : {alike, longer}) {
    for (const int columns : {60, 80, 100}) {
      Progress progress(with_groups(12, prefix), true, {columns, 24});
      std::istringstream rows(progress.update(3, {{"group/" + prefix + "3/share", 0.25}}));
      std::set<std::string> names;
      bool share = false;
      for (std::string row; std::getline(rows, row);) {
        CAPTURE(prefix, columns, row);
        CHECK(row.size() <= static_cast<size_t>(columns));
        if (row.find(prefix.substr(0, 8)) == std::string::npos) continue;
        const size_t end = row.find("  ");
        names.insert(row.substr(0, end));
        share = share || row.find(" 0.25 ") != std::string::npos;
        if (prefix == alike && columns >= 80) CHECK(row.starts_with(alike));
      }
      CHECK(names.size() == 12);
      CHECK(share);
    }
  }
}

}  // namespace motley::app
