// What is removed from a work tree before the model sees it, and whether a trace of the reference fix is left: history,
// caches and backup files are known to leak it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "envs/repository/patch.h"
#include "envs/repository/work_tree.h"

namespace motley::envs {

/// Always removed, whatever a task lists: version control, caches of interpreters and tools, backups of editors and of
/// patch. The patterns of docs/repository-tasks.md.
const std::vector<std::string>& scrubbed_always();

/// '*' stands for any characters but '/', '?' for one. A pattern with '/' is matched against the whole path, one
/// without against every part of it. Takes time in proportion to the product of both lengths at most.
bool matches(std::string_view pattern, std::string_view path);

/// Removes what the patterns match, folders whole. Returns the paths removed, those inside removed folders left out.
std::vector<std::string> scrub(WorkTree& tree, const std::vector<std::string>& patterns);

struct Trace {
  std::string path;   // of the tree
  uint64_t line = 0;  // from 1; 0: in the path itself or in a link's target
  std::string text;   // the added line, without blanks around it
};
/// Every place where a line that the patch adds stands in the tree already, as part of a line or whole. Left out are
/// lines with fewer than `kTellingBytes` bytes that are no blanks, and what the patch only repeats: its context and
/// removed lines anywhere, and whole lines of the files that it touches.
std::vector<Trace> find_traces(const WorkTree& tree, const Patch& patch);
inline constexpr size_t kTellingBytes = 8;

}  // namespace motley::envs
