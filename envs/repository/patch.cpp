#include "envs/repository/patch.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace motley::envs {

namespace {

[[noreturn]] void refuse(size_t line, const std::string& reason) {
  throw TaskError("line " + std::to_string(line) + ": " + reason);
}

struct Line {
  std::string_view text;
  bool ends = true;
};
std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const bool ends = end != std::string_view::npos;
    lines.push_back({text.substr(at, ends ? end - at : end), ends});
    at = ends ? end + 1 : text.size();
  }
  return lines;
}

/// "a/dir/file" and a tab with a date after it, as "dir/file"; /dev/null as the empty text.
std::string header_path(std::string_view text, size_t line) {
  text = text.substr(0, text.find('\t'));
  if (text == "/dev/null") return "";
  if (text.starts_with('"')) refuse(line, "a quoted path; paths hold no quotes and no control characters");
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) refuse(line, "a path without its first part, as in a/" + std::string(text));
  std::string path(text.substr(slash + 1));
  if (const std::string reason = bad_path(path); !reason.empty()) refuse(line, "path '" + path + "' " + reason);
  return path;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lines_(lines_of(text)) {}

  Patch read() {
    Patch patch;
    while (at_ < lines_.size()) {
      const std::string_view text = lines_[at_].text;
      if (text.starts_with("--- ") && at_ + 1 < lines_.size() && lines_[at_ + 1].text.starts_with("+++ ")) {
        patch.push_back(file());
      } else if (text.starts_with("@@ ")) {
        refuse(at_ + 1, "a hunk without the --- and +++ lines of its file");
      } else {
        for (const char* other : {"Binary files ", "GIT binary patch", "rename ", "copy ", "old mode ", "new mode "})
          if (text.starts_with(other)) refuse(at_ + 1, "changes other than to the lines of a text file are not read");
        ++at_;  // "diff --git", "index", "Only in", prose before the diff
      }
    }
    if (patch.empty()) refuse(lines_.size(), "no unified diff: no file's --- and +++ lines");
    return patch;
  }

 private:
  PatchFile file() {
    PatchFile file{header_path(lines_[at_].text.substr(4), at_ + 1),
                   header_path(lines_[at_ + 1].text.substr(4), at_ + 2)};
    if (file.old_path.empty() && file.new_path.empty()) refuse(at_ + 1, "a change from /dev/null to /dev/null");
    if (!file.old_path.empty() && !file.new_path.empty() && file.old_path != file.new_path)
      refuse(at_ + 2, "two paths: renames are not read");
    at_ += 2;
    while (at_ < lines_.size() && lines_[at_].text.starts_with("@@ ")) {
      file.hunks.push_back(hunk());
      const PatchHunk& last = file.hunks.back();
      if ((file.old_path.empty() && last.old_count != 0) || (file.new_path.empty() && last.new_count != 0))
        refuse(at_, "lines in /dev/null");
    }
    if (file.hunks.empty()) refuse(at_, "a file without hunks");
    return file;
  }

  PatchHunk hunk() {
    const size_t header = at_ + 1;
    std::string_view text = lines_[at_++].text;
    PatchHunk hunk;
    const auto expect = [&](std::string_view word) {
      if (!text.starts_with(word)) refuse(header, "wanted @@ -START,COUNT +START,COUNT @@");
      text.remove_prefix(word.size());
    };
    const auto number = [&] {
      constexpr uint64_t kMost = 1000000000;
      uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || value > kMost) refuse(header, "wanted @@ -START,COUNT +START,COUNT @@");
      text.remove_prefix(static_cast<size_t>(end - text.data()));
      return value;
    };
    const auto range = [&](uint64_t& start, uint64_t& count) {
      start = number();
      count = 1;
      if (text.starts_with(',')) text.remove_prefix(1), count = number();
      if (start == 0 && count != 0) refuse(header, "lines count from 1");
    };
    expect("@@ -");
    range(hunk.old_start, hunk.old_count);
    expect(" +");
    range(hunk.new_start, hunk.new_count);
    expect(" @@");
    read_lines(hunk);
    return hunk;
  }

  void read_lines(PatchHunk& hunk) {
    uint64_t old_left = hunk.old_count, new_left = hunk.new_count;
    while (old_left + new_left > 0) {
      if (at_ == lines_.size()) refuse(at_, "the hunk ends early");
      const std::string_view text = lines_[at_].text;
      const char sign = text.empty() ? ' ' : text[0];  // editors strip the blank of an empty line
      const bool fits = sign == ' ' ? old_left && new_left : sign == '-' ? old_left > 0 : sign == '+' && new_left > 0;
      if (!fits) refuse(at_ + 1, "a line that the hunk has no room for");
      old_left -= sign != '+';
      new_left -= sign != '-';
      hunk.lines.push_back({sign, std::string(text.substr(text.empty() ? 0 : 1))});
      ++at_;
      take_no_newline(hunk);
    }
  }

  void take_no_newline(PatchHunk& hunk) {
    if (at_ == lines_.size() || !lines_[at_].text.starts_with("\\ ")) return;
    hunk.lines.back().ends = false;
    ++at_;
  }

  std::vector<Line> lines_;
  size_t at_ = 0;
};

std::string range_text(uint64_t start, uint64_t count) {
  return std::to_string(count == 0 ? start - 1 : start) + "," + std::to_string(count);
}

void write_line(std::string& out, char sign, const Line& line) {
  (out += sign).append(line.text) += '\n';
  if (!line.ends) out += "\\ No newline at end of file\n";
}

/// One hunk: what differs, with up to three lines around it.
void write_hunk(std::string& out, const std::vector<Line>& before, const std::vector<Line>& after) {
  const auto same = [](const Line& a, const Line& b) { return a.text == b.text && a.ends == b.ends; };
  const size_t most = std::min(before.size(), after.size());
  size_t head = 0, tail = 0;
  while (head < most && same(before[head], after[head])) ++head;
  while (tail < most - head && same(before[before.size() - 1 - tail], after[after.size() - 1 - tail])) ++tail;
  const size_t context = 3, start = head - std::min(head, context);
  const size_t end = before.size() - tail, new_end = after.size() - tail, trail = std::min(tail, context);
  out += "@@ -" + range_text(start + 1, end + trail - start) + " +" + range_text(start + 1, new_end + trail - start) +
         " @@\n";
  for (size_t i = start; i < head; ++i) write_line(out, ' ', before[i]);
  for (size_t i = head; i < end; ++i) write_line(out, '-', before[i]);
  for (size_t i = head; i < new_end; ++i) write_line(out, '+', after[i]);
  for (size_t i = end; i < end + trail; ++i) write_line(out, ' ', before[i]);
}

std::string patched(const PatchFile& file, const std::string& content) {
  const std::vector<Line> lines = lines_of(content);
  std::string out;
  size_t at = 0;
  const std::string place = "path '" + (file.old_path.empty() ? file.new_path : file.old_path) + "' line ";
  const auto put = [&](std::string_view text, bool ends) {
    if (!out.empty() && !out.ends_with('\n'))
      throw TaskError(place + std::to_string(at) + ": more lines after the one without a line end");
    out.append(text);
    if (ends) out += '\n';
  };
  for (const PatchHunk& hunk : file.hunks) {
    const size_t start = hunk.old_count == 0 ? hunk.old_start : hunk.old_start - 1;
    if (start < at || start > lines.size())
      throw TaskError(place + std::to_string(hunk.old_start) + ": no place for a hunk");
    for (; at < start; ++at) put(lines[at].text, lines[at].ends);
    for (const PatchLine& line : hunk.lines) {
      if (line.sign != '+') {
        if (at == lines.size() || lines[at].text != line.text || lines[at].ends != line.ends)
          throw TaskError(place + std::to_string(at + 1) + ": the file does not hold the line '" + line.text + "'");
        ++at;
      }
      if (line.sign != '-') put(line.text, line.ends);
    }
  }
  for (; at < lines.size(); ++at) put(lines[at].text, lines[at].ends);
  return out;
}

}  // namespace

Patch parse_patch(std::string_view text) { return Parser(text).read(); }

void apply_patch(const Patch& patch, WorkTree& tree) {
  for (const PatchFile& file : patch) {
    if (file.old_path.empty()) {
      if (tree.find(file.new_path)) throw TaskError("path '" + file.new_path + "': the file exists already");
      tree.add(file.new_path, {TreeEntry::Kind::file, false, patched(file, "")});
      continue;
    }
    const TreeEntry* old = tree.find(file.old_path);
    if (!old || old->kind != TreeEntry::Kind::file)
      throw TaskError("path '" + file.old_path + "': there is no such file");
    TreeEntry next{TreeEntry::Kind::file, old->executable, patched(file, old->content)};
    if (file.new_path.empty()) {
      if (!next.content.empty()) throw TaskError("path '" + file.old_path + "': lines are left of a removed file");
      tree.remove(file.old_path);
    } else {
      tree.replace(file.new_path, std::move(next));
    }
  }
}

std::string make_patch(const WorkTree& before, const WorkTree& after) {
  std::set<std::string> paths;
  for (const WorkTree* tree : {&before, &after})
    for (const auto& [path, entry] : tree->entries()) paths.insert(path);
  std::string out;
  for (const std::string& path : paths) {
    const TreeEntry *old = before.find(path), *now = after.find(path);
    if (old && now && *old == *now) continue;
    const auto is_text = [](const TreeEntry* e) {
      return !e || (e->kind == TreeEntry::Kind::file && e->content.find('\0') == std::string::npos);
    };
    if (!is_text(old) || !is_text(now) || (old && now && old->executable != now->executable) ||
        (!old && now->executable) || (!old && now->content.empty()) || (!now && old->content.empty()))
      throw TaskError("path '" + path + "': a change other than to the lines of a text file");
    out += old ? "--- a/" + path + "\n" : "--- /dev/null\n";
    out += now ? "+++ b/" + path + "\n" : "+++ /dev/null\n";
    write_hunk(out, lines_of(old ? old->content : ""), lines_of(now ? now->content : ""));
  }
  return out;
}

std::vector<std::string> touched_paths(const Patch& patch) {
  std::set<std::string> paths;
  for (const PatchFile& file : patch) paths.insert(file.old_path.empty() ? file.new_path : file.old_path);
  return {paths.begin(), paths.end()};
}

}  // namespace motley::envs
