#include "envs/repository/prove.h"

namespace motley::envs {
namespace {

/// Why it did not pass, with the last line that the tests printed.
std::string reason_of(const Score& score) {
  std::string output = score.output;
  while (!output.empty() && output.back() == '\n') output.pop_back();
  const std::string last = output.substr(output.rfind('\n') + 1).substr(0, 200);
  return score.reason + (last.empty() ? "" : ": " + last);
}

}  // namespace

Score score_demonstration(SandboxHost& host, const RepositoryTask& task) {
  try {
    Sandbox episode(host, sandbox_limits(task.limits));
    episode.put(visible_tree(task).entries());
    for (const std::string& command : task.demonstration) episode.call(command);
    return score_episode(host, task, episode);
  } catch (const std::exception& error) {
    Score score;
    score.reason = error.what();
    return score;
  }
}

std::vector<std::string> prove_task(SandboxHost& host, const RepositoryTask& task) {
  std::vector<std::string> problems;
  const Score untouched = score_patch(host, task, "");
  if (untouched.kind == Score::Kind::error) return {"it cannot be scored: " + untouched.reason};
  if (untouched.kind == Score::Kind::passed) problems.emplace_back("the untouched tree passes its hidden tests");
  try {
    if (const std::string fix = reference_patch(task); !fix.empty()) {
      const Score fixed = score_patch(host, task, fix);
      if (fixed.kind != Score::Kind::passed) problems.push_back("the fix does not pass: " + reason_of(fixed));
    }
  } catch (const TaskError& error) {
    problems.push_back(std::string("the fix cannot be read: ") + error.what());
  }
  if (!task.demonstration.empty()) {
    const Score shown = score_demonstration(host, task);
    if (shown.kind != Score::Kind::passed) problems.push_back("the demonstration does not pass: " + reason_of(shown));
  }
  return problems;
}

}  // namespace motley::envs
