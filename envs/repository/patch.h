// Unified diffs, as diff -u and git diff write them: read strictly, applied exactly. A reference fix is one, and so is
// what an episode has changed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "envs/repository/work_tree.h"

namespace motley::envs {

struct PatchLine {
  char sign = ' ';     // ' ', '-' or '+'
  std::string text{};  // without its line end
  bool ends = true;    // false: the file's last line, without a line end
};
struct PatchHunk {
  uint64_t old_start = 0, old_count = 0, new_start = 0, new_count = 0;  // lines from 1; a start is 0 where the count is
  std::vector<PatchLine> lines{};
};
struct PatchFile {
  std::string old_path{}, new_path{};  // empty: /dev/null, the file is made or removed
  std::vector<PatchHunk> hunks{};
};
using Patch = std::vector<PatchFile>;

/// Reads a diff of text files; the first part of a path ("a/", "b/") is dropped. Throws TaskError "line N: reason": no
/// diff, a path that leaves the tree, counts that do not fit, binary files, renames, copies and changes of mode.
Patch parse_patch(std::string_view text);

/// Every hunk must stand exactly where it says: no offset, no fuzz. Throws TaskError naming path and line.
void apply_patch(const Patch& patch, WorkTree& tree);

/// The diff that makes `after` of `before`, one hunk a file, in the order of paths. Throws TaskError: a change of other
/// things than the bytes of text files (links, modes, folders, NUL bytes).
std::string make_patch(const WorkTree& before, const WorkTree& after);

/// The paths that a patch touches, sorted.
std::vector<std::string> touched_paths(const Patch& patch);

}  // namespace motley::envs
