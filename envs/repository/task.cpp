#include "envs/repository/task.h"

#include <algorithm>
#include <map>

#include "envs/repository/scrub.h"

namespace motley::envs {

namespace {

constexpr size_t kMostShown = 5;  // of a kind of problem

WorkTree read_source(const RepositoryTask& task, const TreeSource& source) {
  if (const auto* tree = std::get_if<WorkTree>(&source)) return *tree;
  try {
    return read_tree(std::get<std::filesystem::path>(source));
  } catch (const TaskError& error) {
    throw TaskError(task.place + ": " + error.what());
  }
}

/// The reference fix of whole files: each stands in the visible tree in its unfixed form, or is new.
std::string patch_of_files(const RepositoryTask& task, const WorkTree& tree, const TreeSource& source) {
  const WorkTree files = read_source(task, source);
  WorkTree fixed = tree;
  for (const auto& [path, entry] : files.entries()) {
    if (entry.kind == TreeEntry::Kind::folder) continue;
    TreeEntry next = entry;
    if (const TreeEntry* old = tree.find(path)) next.executable = old->executable;
    fixed.replace(path, std::move(next));
  }
  return make_patch(tree, fixed);
}

std::string reference_patch(const RepositoryTask& task, const WorkTree& tree) {
  if (const auto* text = std::get_if<std::string>(&task.fix)) return *text;
  if (const auto* files = std::get_if<TreeSource>(&task.fix)) return patch_of_files(task, tree, *files);
  return "";
}

void inspect_traces(const RepositoryTask& task, const WorkTree& tree, const Patch& patch,
                    std::vector<std::string>& problems) {
  size_t found = 0;
  for (const Trace& trace : find_traces(tree, patch)) {
    if (std::find(task.known_lines.begin(), task.known_lines.end(), trace.text) != task.known_lines.end()) continue;
    if (++found > kMostShown) continue;
    problems.push_back("trace of the fix in " + trace.path + (trace.line ? ":" + std::to_string(trace.line) : "") +
                       ": \"" + trace.text + "\"; remove it, or name it under \"known_lines\"");
  }
  if (found > kMostShown) problems.push_back("and " + std::to_string(found - kMostShown) + " further traces");
}

void inspect_fix(const RepositoryTask& task, const WorkTree& tree, const WorkTree& tests,
                 std::vector<std::string>& problems) {
  const std::string text = reference_patch(task, tree);
  if (text.empty()) {
    if (!std::holds_alternative<std::monostate>(task.fix)) problems.push_back("fix: changes nothing");
    return;
  }
  const Patch patch = parse_patch(text);
  for (const std::string& path : touched_paths(patch))
    if (tests.find(path)) problems.push_back("fix: touches the hidden test " + path);
  WorkTree fixed = tree;
  apply_patch(patch, fixed);
  inspect_traces(task, tree, patch, problems);
}

void inspect_tests(const WorkTree& tree, const WorkTree& tests, std::vector<std::string>& problems) {
  std::map<std::string_view, std::string_view> contents;
  for (const auto& [path, entry] : tree.entries())
    if (entry.kind == TreeEntry::Kind::file) contents.emplace(entry.content, path);
  for (const auto& [path, entry] : tests.entries()) {
    if (entry.kind != TreeEntry::Kind::file || entry.content.find_first_not_of(" \t\r\n") == std::string::npos)
      continue;
    const auto found = contents.find(entry.content);
    if (found != contents.end())
      problems.push_back("the hidden test " + path + " stands in the tree as " + std::string(found->second));
  }
}

}  // namespace

WorkTree visible_tree(const RepositoryTask& task) {
  WorkTree tree = read_source(task, task.tree);
  scrub(tree, task.remove);
  return tree;
}

WorkTree hidden_tests(const RepositoryTask& task) { return read_source(task, task.tests); }

std::string reference_patch(const RepositoryTask& task) { return reference_patch(task, visible_tree(task)); }

std::vector<std::string> inspect_task(const RepositoryTask& task) {
  std::vector<std::string> problems;
  const auto attempt = [&](const std::string& what, const auto& step) {
    try {
      step();
    } catch (const TaskError& error) {
      problems.push_back(what + error.what());
    }
  };
  WorkTree tree, tests;
  attempt("tree: ", [&] { tree = visible_tree(task); });
  attempt("tests: ", [&] { tests = hidden_tests(task); });
  if (problems.empty() && tree.entries().empty()) problems.push_back("tree: nothing is left of it");
  if (!problems.empty()) return problems;
  inspect_tests(tree, tests, problems);
  attempt("fix: ", [&] { inspect_fix(task, tree, tests, problems); });
  return problems;
}

}  // namespace motley::envs
