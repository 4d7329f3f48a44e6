#include "envs/repository/scrub.h"

#include <algorithm>
#include <set>

namespace motley::envs {

namespace {

/// Greedy matching with one place to go back to: the last '*'.
bool matches_text(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && ((pattern[p] == '?' && text[t] != '/') || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos && text[from] != '/') {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

/// The added lines of a patch that tell something.
std::set<std::string, std::less<>> telling_lines(const Patch& patch) {
  std::set<std::string, std::less<>> added, before;
  for (const PatchFile& file : patch)
    for (const PatchHunk& hunk : file.hunks)
      for (const PatchLine& line : hunk.lines) {
        const std::string_view text = trimmed(line.text);
        const auto solid = std::count_if(text.begin(), text.end(), [](char c) { return c != ' ' && c != '\t'; });
        if (line.sign != '+') {
          before.emplace(text);
        } else if (static_cast<size_t>(solid) >= kTellingBytes) {
          added.emplace(text);
        }
      }
  for (const std::string& line : before) added.erase(line);
  return added;
}

}  // namespace

const std::vector<std::string>& scrubbed_always() {
  static const std::vector<std::string> patterns{
      ".git",      ".hg",         ".svn",   ".bzr",      ".jj",           "CVS",         "_darcs",
      ".fslckout", "__pycache__", "*.pyc",  "*.pyo",     ".pytest_cache", ".mypy_cache", ".ruff_cache",
      ".tox",      ".nox",        ".cache", ".coverage", ".hypothesis",   ".idea",       ".vscode",
      "*.orig",    "*.rej",       "*.bak",  "*.swp",     "*.swo",         "*~",          ".DS_Store"};
  return patterns;
}

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.find('/') != std::string_view::npos) return matches_text(pattern, path);
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (matches_text(pattern, path.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

std::vector<std::string> scrub(WorkTree& tree, const std::vector<std::string>& patterns) {
  std::vector<std::string> removed;
  const auto unwanted = [&](std::string_view path) {
    const auto hit = [&](const std::string& pattern) { return matches(pattern, path); };
    return std::any_of(scrubbed_always().begin(), scrubbed_always().end(), hit) ||
           std::any_of(patterns.begin(), patterns.end(), hit);
  };
  // A folder need not be an entry of its own, so every path above an entry is looked at.
  std::set<std::string> gone;
  for (const auto& [path, entry] : tree.entries()) {
    for (size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
      const std::string part = path.substr(0, slash);
      if (unwanted(part)) {
        gone.insert(part);
        break;
      }
      if (slash == std::string::npos) break;
    }
  }
  for (const std::string& path : gone) {
    tree.remove(path);
    removed.push_back(path);
  }
  return removed;
}

std::vector<Trace> find_traces(const WorkTree& tree, const Patch& patch) {
  std::vector<Trace> traces;
  const std::vector<std::string> touched = touched_paths(patch);
  for (const std::string& wanted : telling_lines(patch)) {
    for (const auto& [path, entry] : tree.entries()) {
      const bool own = std::binary_search(touched.begin(), touched.end(), path);
      if (path.find(wanted) != std::string::npos) traces.push_back({path, 0, wanted});
      const bool link = entry.kind == TreeEntry::Kind::link;
      const std::string& text = entry.content;
      for (size_t at = text.find(wanted), line = 1, counted = 0; at != std::string::npos; at = text.find(wanted, at)) {
        line += static_cast<size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                                               text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
        const size_t begin = text.rfind('\n', at) + 1, end = std::min(text.find('\n', at), text.size());
        if (!own || trimmed(std::string_view(text).substr(begin, end - begin)) != wanted)
          traces.push_back({path, link ? 0 : line, wanted});
        counted = at;
        at = end;  // once a line
      }
    }
  }
  return traces;
}

}  // namespace motley::envs
