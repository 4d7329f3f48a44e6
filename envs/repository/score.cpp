#include "envs/repository/score.h"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <vector>

#include "envs/repository/scrub.h"

namespace motley::envs {
namespace {

/// Changes that are not to be tried, with the reason.
class Rejected : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Files that interpreters and test runners load by themselves: a way to change what the tests do without touching
/// them.
constexpr std::array<std::string_view, 5> kLoadedUnasked = {"conftest.py", "sitecustomize.py", "usercustomize.py",
                                                            "pytest.ini", ".bashrc"};

/// For a message: no control characters, not too long.
std::string shown(std::string_view path) {
  std::string text(path.substr(0, 200));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return "'" + text + "'";
}

/// A path that is scrubbed from every tree, itself or with a folder above it.
bool scrubbed(const std::string& path, const std::vector<std::string>& patterns) {
  for (size_t end = path.find('/');; end = path.find('/', end + 1)) {
    const std::string_view part = std::string_view(path).substr(0, end);
    if (std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(p, part); }))
      return true;
    if (end == std::string::npos) return false;
  }
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// True where the test command names the file as a word of its own.
bool names(std::string_view command, std::string_view path) {
  constexpr std::string_view separators = " \t\n;&|<>()'\"=";
  for (size_t at = command.find(path); at != std::string_view::npos; at = command.find(path, at + 1)) {
    std::string_view before = command.substr(0, at);
    if (before.ends_with("./")) before.remove_suffix(2);
    const std::string_view after = command.substr(at + path.size());
    if ((before.empty() || separators.find(before.back()) != std::string_view::npos) &&
        (after.empty() || separators.find(after.front()) != std::string_view::npos))
      return true;
  }
  return false;
}

class Scorer {
 public:
  Scorer(SandboxHost& host, const RepositoryTask& task)
      : host_(host), task_(task), visible_(visible_tree(task)), hidden_(hidden_tests(task)), changed_(visible_) {
    patterns_ = scrubbed_always();
    patterns_.insert(patterns_.end(), task.remove.begin(), task.remove.end());
  }

  /// Brings the changes from the visible tree to `after` onto the copy. Folders come and go with their files.
  void take_over(const FileTree& after) {
    for (const auto& [path, entry] : visible_.entries()) {
      const auto now = after.find(path);
      const bool folder = entry.kind == TreeEntry::Kind::folder;
      const bool gone = now == after.end() || (now->second.kind == TreeEntry::Kind::folder) != folder;
      if (!gone) continue;
      if (!folder) check(path);
      changed_.remove(path);
    }
    for (const auto& [path, entry] : after) {
      if (entry.kind == TreeEntry::Kind::folder || scrubbed(path, patterns_)) continue;
      const TreeEntry* before = visible_.find(path);
      if (before != nullptr && *before == entry) continue;
      check(path);
      changed_.replace(path, entry);
    }
  }

  void apply(std::string_view patch) {
    if (patch.empty()) return;
    const Patch parsed = parse_patch(patch);
    for (const std::string& path : touched_paths(parsed)) check(path);
    apply_patch(parsed, changed_);
  }

  Score run() {
    Score score;
    score.patch = diff();
    enter_tests();
    SandboxLimits limits = sandbox_limits(task_.limits);
    limits.call_seconds = static_cast<double>(task_.limits.test_seconds);
    limits.cpu_seconds = limits.call_seconds * 4;
    limits.episode_seconds = limits.call_seconds + 60;
    Sandbox sandbox(host_, limits);
    sandbox.put(changed_.entries());
    const CallResult result = sandbox.run(task_.test);
    score.kind = result.status == 0 ? Score::Kind::passed : Score::Kind::failed;
    score.output = result.output;
    score.seconds = result.seconds;
    if (result.timed_out)
      score.reason = "the tests did not end within " + std::to_string(task_.limits.test_seconds) + " s";
    else if (result.out_of_memory)
      score.reason = "the tests went beyond the limit on memory";
    else if (result.status != 0)
      score.reason = "the tests ended with status " + std::to_string(result.status);
    return score;
  }

 private:
  /// Throws Rejected for a change that is not the model's to make.
  void check(const std::string& path) const {
    if (const std::string reason = bad_path(path); !reason.empty())
      throw Rejected("the changed path " + shown(path) + " " + reason);
    for (const auto& [test, entry] : hidden_.entries())
      if (entry.kind != TreeEntry::Kind::folder &&
          (path == test || path.starts_with(test + "/") || test.starts_with(path + "/")))
        throw Rejected("the changes touch the tests, at " + shown(path));
    if (names(task_.test, path)) throw Rejected("the changes touch what the test command runs, " + shown(path));
    if (std::find(kLoadedUnasked.begin(), kLoadedUnasked.end(), last_part(path)) != kLoadedUnasked.end())
      throw Rejected("the changes touch what test runners load unasked, " + shown(path));
  }

  /// Hidden tests take the place of whatever stands at their paths.
  void enter_tests() {
    for (const auto& [path, entry] : hidden_.entries()) {
      if (entry.kind != TreeEntry::Kind::folder) changed_.remove(path);
      changed_.replace(path, entry);
    }
  }

  std::string diff() const {
    try {
      return make_patch(visible_, changed_);
    } catch (const TaskError&) {  // links, modes, bytes that are no text: it is scored all the same
      return "";
    }
  }

  SandboxHost& host_;
  const RepositoryTask& task_;
  WorkTree visible_, hidden_, changed_;
  std::vector<std::string> patterns_;
};

Score ended(Score::Kind kind, const std::string& reason) {
  Score score;
  score.kind = kind;
  score.reason = reason;
  return score;
}

/// `bring` brings the changes; what is wrong with them is its TaskError, Rejected or TreeError.
Score score(SandboxHost& host, const RepositoryTask& task, const std::function<void(Scorer&)>& bring) {
  try {
    Scorer scorer(host, task);
    try {
      bring(scorer);
    } catch (const EpisodeOver& error) {
      return ended(Score::Kind::failed, error.what());
    } catch (const TreeError& error) {
      return ended(Score::Kind::rejected, error.what());
    } catch (const Rejected& error) {
      return ended(Score::Kind::rejected, error.what());
    } catch (const TaskError& error) {
      return ended(Score::Kind::rejected, std::string("the changes do not apply: ") + error.what());
    }
    return scorer.run();
  } catch (const std::exception& error) {
    return ended(Score::Kind::error, error.what());
  }
}

}  // namespace

SandboxLimits sandbox_limits(const RepositoryLimits& limits) {
  SandboxLimits out;
  out.memory_bytes = static_cast<uint64_t>(std::max<int64_t>(limits.memory_mib, 32)) << 20;
  out.disk_bytes = std::min(static_cast<uint64_t>(std::max<int64_t>(limits.disk_mib, 1)) << 20, out.memory_bytes / 2);
  out.processes = static_cast<uint32_t>(std::clamp<int64_t>(limits.processes, 8, 4096));
  out.output_bytes = static_cast<uint64_t>(std::max<int64_t>(limits.output_bytes, 64));
  out.call_seconds = static_cast<double>(limits.call_seconds);
  out.episode_seconds = static_cast<double>(limits.episode_seconds);
  out.cpu_seconds = out.episode_seconds;
  return out;
}

Score score_tree(SandboxHost& host, const RepositoryTask& task, const FileTree& after) {
  return score(host, task, [&](Scorer& scorer) { scorer.take_over(after); });
}

Score score_episode(SandboxHost& host, const RepositoryTask& task, Sandbox& episode) {
  return score(host, task, [&](Scorer& scorer) { scorer.take_over(episode.take()); });
}

Score score_patch(SandboxHost& host, const RepositoryTask& task, std::string_view patch) {
  return score(host, task, [&](Scorer& scorer) { scorer.apply(patch); });
}

}  // namespace motley::envs
