#include "envs/repository/work_tree.h"

#include <algorithm>
#include <vector>

namespace motley::envs {

namespace {

constexpr size_t kMostParts = 64;
constexpr size_t kPartBytes = 255;  // what file systems take

/// Whether a link in `path` may lead out of the tree. ".." comes first or not at all: after the name of another link it
/// would be taken from where that one leads.
bool leaves_tree(std::string_view path, std::string_view target) {
  if (target.starts_with('/')) return true;
  int64_t depth = std::count(path.begin(), path.end(), '/');
  bool named = false;
  for (size_t at = 0; at <= target.size();) {
    const size_t end = std::min(target.find('/', at), target.size());
    const std::string_view part = target.substr(at, end - at);
    if (part == "..") {
      if (named || --depth < 0) return true;
    } else if (!part.empty() && part != ".") {
      named = true;
    }
    at = end + 1;
  }
  return false;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

/// A path for a message: control characters as '?'.
std::string shown(std::string_view path) {
  std::string text(path.substr(0, 200));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return "'" + text + (path.size() > 200 ? "...'" : "'");
}

}  // namespace

std::string bad_path(std::string_view path, size_t path_bytes) {
  if (path.empty()) return "is empty";
  if (path.size() > path_bytes) return "is longer than " + std::to_string(path_bytes) + " bytes";
  if (has_control(path)) return "holds a control character";
  if (path.starts_with('/')) return "is absolute";
  size_t parts = 0;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty()) return "has an empty part";
    if (part == "." || part == "..") return "has the part '" + std::string(part) + "'";
    if (part.size() > kPartBytes) return "has a part of more than 255 bytes";
    if (++parts > kMostParts) return "is more than 64 folders deep";
    at = end + 1;
  }
  return "";
}

void WorkTree::check_room(uint64_t more, std::string_view path) const {
  if (more > limits_.bytes - bytes_)
    throw TaskError("path " + shown(path) + ": the tree holds more than " + std::to_string(limits_.bytes) + " bytes");
}

void WorkTree::add(const std::string& path, TreeEntry entry) {
  const auto refuse = [&](const std::string& reason) { throw TaskError("path " + shown(path) + " " + reason); };
  if (const std::string reason = bad_path(path, limits_.path_bytes); !reason.empty()) refuse(reason);
  if (entry.kind == TreeEntry::Kind::link) {
    if (entry.content.empty() || entry.content.size() > limits_.path_bytes || has_control(entry.content))
      refuse("is a link without a proper target");
    if (leaves_tree(path, entry.content)) refuse("is a link that leaves the tree, to " + shown(entry.content));
  }
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const TreeEntry* above = find(path.substr(0, slash));
    if (above && above->kind != TreeEntry::Kind::folder)
      refuse("lies below " + shown(path.substr(0, slash)) + ", which is no folder");
  }
  const auto below = entries_.lower_bound(path + "/");
  const bool is_parent = below != entries_.end() && below->first.starts_with(path + "/");
  if (is_parent && entry.kind != TreeEntry::Kind::folder) refuse("is a folder elsewhere in the tree");
  if (const TreeEntry* old = find(path)) {
    if (old->kind == TreeEntry::Kind::folder && entry.kind == TreeEntry::Kind::folder) return;
    refuse("stands twice");
  }
  check_room(entry.content.size(), path);
  if (entries_.size() >= limits_.entries) refuse("is one too many: a tree holds " + std::to_string(limits_.entries));
  bytes_ += entry.content.size();
  entries_.emplace(path, std::move(entry));
}

void WorkTree::replace(const std::string& path, TreeEntry entry) {
  if (const TreeEntry* old = find(path); old && old->kind != TreeEntry::Kind::folder) remove(path);
  add(path, std::move(entry));
}

void WorkTree::remove(const std::string& path) {
  std::vector<std::string> gone;
  if (entries_.contains(path)) gone.push_back(path);
  for (auto below = entries_.lower_bound(path + "/"); below != entries_.end() && below->first.starts_with(path + "/");
       ++below)
    gone.push_back(below->first);
  for (const std::string& each : gone) {
    bytes_ -= entries_.at(each).content.size();
    entries_.erase(each);
  }
}

const TreeEntry* WorkTree::find(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace motley::envs
