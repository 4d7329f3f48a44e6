// Files between motley and the work tree of a sandbox. Run by its first process, so whatever a path or a link says, it
// names something inside the sandbox.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "envs/sandbox/helper/wire.h"

namespace motley::envs {

/// Makes one file, link or folder below the work folder, and the folders above it; a file or link there is replaced.
/// Never follows a link. Returns what went wrong, or nothing. `path` is relative, without "." and ".." parts.
std::string put_file(std::string_view path, wire::EntryKind kind, std::string_view content);

/// Everything below `folder` (relative to the work folder; empty: all of it) that is a file or a link, folder by
/// folder. Other things (pipes, sockets) are skipped. Nothing else may run meanwhile. Returns why the tree is not whole
/// (too many bytes, entries or levels of folders), or nothing.
struct TakeLimits {
  uint64_t bytes = 0, entries = 0;
};
using TreeVisitor = std::function<void(const std::string& path, wire::EntryKind kind, const std::string& content)>;
std::string take_tree(const std::string& folder, const TakeLimits& limits, const TreeVisitor& visit);

}  // namespace motley::envs
