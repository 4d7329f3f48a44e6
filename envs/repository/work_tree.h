// A work tree in memory: the files of a repository task, by path. What comes from a folder, an archive or a JSON object
// is untrusted, and passes the same checks here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "envs/environment.h"

namespace motley::envs {

struct TreeEntry {
  enum class Kind : uint8_t { file, folder, link } kind = Kind::file;
  bool executable = false;  // of a file
  std::string content{};    // bytes of a file, target of a link
  bool operator==(const TreeEntry&) const = default;
};

/// How much a tree may hold; the defaults are what is read from anywhere.
struct TreeLimits {
  uint64_t entries = 20000;
  uint64_t bytes = uint64_t{256} << 20;  // of all files and links together
  size_t path_bytes = 1024;
};

/// Paths are relative, with '/' between their parts, none of which is empty, "." or ".."; without control characters.
/// Nothing lies below a file or a link. A link is relative and stays inside the tree.
class WorkTree {
 public:
  WorkTree() : limits_(TreeLimits()) {}
  explicit WorkTree(const TreeLimits& limits) : limits_(limits) {}
  /// Throws TaskError naming the path and the rule that it breaks: a bad path, one that stands twice, a link that
  /// leaves the tree, too much. The folders above a path need not be added.
  void add(const std::string& path, TreeEntry entry);
  /// Throws TaskError once `more` bytes would be too many, before they are held: for reading in pieces.
  void check_room(uint64_t more, std::string_view path) const;
  /// Puts a file in place of whatever file is there.
  void replace(const std::string& path, TreeEntry entry);
  /// A folder goes with all that it holds. Nothing where there is no such path.
  void remove(const std::string& path);
  const TreeEntry* find(const std::string& path) const;
  const std::map<std::string, TreeEntry>& entries() const { return entries_; }
  uint64_t bytes() const { return bytes_; }
  bool operator==(const WorkTree& other) const { return entries_ == other.entries_; }

 private:
  TreeLimits limits_;
  std::map<std::string, TreeEntry> entries_;
  uint64_t bytes_ = 0;
};

/// The reason why `path` may not stand in a tree; empty: it may.
std::string bad_path(std::string_view path, size_t path_bytes = TreeLimits().path_bytes);

/// Reads a folder without following links; sockets, pipes and devices are refused. Throws TaskError.
WorkTree read_folder(const std::filesystem::path& folder, const TreeLimits& limits = TreeLimits());
/// Reads a tar file (ustar, pax or GNU; plain or compressed with gzip, xz or zstd). Hard links, devices and encrypted
/// or damaged archives are refused. Throws TaskError.
WorkTree read_archive(const std::filesystem::path& file, const TreeLimits& limits = TreeLimits());
/// A folder or a tar file, by what is there.
WorkTree read_tree(const std::filesystem::path& place, const TreeLimits& limits = TreeLimits());
/// Writes a tree into a folder that exists and that nobody else writes to. Throws std::runtime_error.
void write_tree(const WorkTree& tree, const std::filesystem::path& folder);

}  // namespace motley::envs
