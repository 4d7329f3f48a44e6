// The families of file operations and of edits by line.
#include <algorithm>

#include "envs/repository/small_task.h"

namespace motley::envs {

namespace {

/// A test of the whole tree: its names, and what stands in each file.
void test_whole_tree(SmallTask& task) {
  std::string top, below;
  Files names{{"test.sh", ""}};
  for (const auto& [path, text] : task.after) names[path.substr(0, path.find('/'))];
  for (const auto& [name, unused] : names) top += (top.empty() ? "" : " ") + name;
  for (const auto& [path, text] : task.after)
    if (path.find('/') != std::string::npos) below += " " + path;
  std::string script = "[ \"$(echo * */*)\" = '" + top + (below.empty() ? " */*" : below) + "' ] || exit 1\n";
  for (const auto& [path, text] : task.after)
    script += "[ \"$(cat " + path + ")\" = '" + text.substr(0, text.size() - 1) + "' ] || exit 1\n";
  task.tests = {{"test.sh", script}};
  task.test = "sh test.sh";
}

/// One operation on the files; the names that it used are gone from `free` and from `held`.
void operate(kernels::RandomStream& random, SmallTask& task, std::vector<std::string>& held,
             std::vector<std::string>& free) {
  const std::string from = held.back(), to = free.back();
  held.pop_back();
  const std::string text = task.after.at(from);
  const std::string and_so = task.issue.empty() ? "" : ", ";
  switch (random.below(4)) {
    case 0:
      task.issue += and_so + "rename " + from + " to " + to;
      task.demonstration.push_back("mv " + from + " " + to);
      task.after.erase(from);
      task.after[to] = text;
      free.pop_back();
      return;
    case 1:
      task.issue += and_so + "copy " + from + " to " + to;
      task.demonstration.push_back("cp " + from + " " + to);
      task.after[to] = text;
      free.pop_back();
      return;
    case 2:
      task.issue += and_so + "remove " + from;
      task.demonstration.push_back("rm " + from);
      task.after.erase(from);
      return;
    default:
      task.issue += and_so + "put " + from + " in pen";
      task.demonstration.push_back("mv " + from + " pen");
      task.after.erase(from);
      task.after["pen/" + from] = text;
      return;
  }
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

std::vector<std::string> pick_words(kernels::RandomStream& random, std::vector<std::string> from, size_t count) {
  for (size_t i = 0; i < count; ++i) std::swap(from[i], from[i + random.below(from.size() - i)]);
  from.resize(count);
  return from;
}

const std::vector<std::string>& animals() {
  static const std::vector<std::string> words{"ant", "bee", "cat", "dog", "eel", "fox", "hen", "owl", "pig", "rat"};
  return words;
}

const std::vector<std::string>& colours() {
  static const std::vector<std::string> words{"red", "blue", "green", "black", "white", "grey", "pink", "gold"};
  return words;
}

SmallTask draw_files(kernels::RandomStream& random) {
  SmallTask task;
  std::vector<std::string> names = pick_words(random, animals(), 7);
  std::vector<std::string> free(names.begin() + 4, names.end()), held(names.begin(), names.begin() + 3);
  for (const std::string& name : held) task.before[name] = pick(random, colours()) + "\n";
  task.before["pen/" + names[3]] = pick(random, colours()) + "\n";
  task.after = task.before;
  for (uint64_t left = 1 + random.below(2); left > 0; --left) operate(random, task, held, free);
  test_whole_tree(task);
  return task;
}

SmallTask draw_lines(kernels::RandomStream& random) {
  SmallTask task;
  const std::vector<std::string> names = pick_words(random, animals(), 2), words = pick_words(random, colours(), 6);
  std::vector<std::string> lines(words.begin(), words.begin() + 2 + static_cast<std::ptrdiff_t>(random.below(3)));
  const std::string &name = names[0], &fresh = words[5];
  task.before = {{name, joined(lines)}, {names[1], pick(random, colours()) + "\n"}};
  const size_t line = random.below(lines.size());
  const std::string number = std::to_string(line + 1), old = lines[line];
  const auto at = lines.begin() + static_cast<std::ptrdiff_t>(line);
  switch (random.below(4)) {
    case 0:
      task.issue = "in " + name + " put " + fresh + " for " + old;
      task.demonstration = {"sed -i s/" + old + "/" + fresh + "/ " + name};
      lines[line] = fresh;
      break;
    case 1:
      task.issue = "delete line " + number + " of " + name;
      task.demonstration = {"sed -i " + number + "d " + name};
      lines.erase(at);
      break;
    case 2:
      task.issue = "insert " + fresh + " before line " + number + " of " + name;
      task.demonstration = {"sed -i " + number + "i" + fresh + " " + name};
      lines.insert(at, fresh);
      break;
    default:
      task.issue = "append " + fresh + " to " + name;
      task.demonstration = {"echo " + fresh + " >>" + name};
      lines.push_back(fresh);
  }
  task.after = task.before;
  task.after[name] = joined(lines);
  test_whole_tree(task);
  return task;
}

}  // namespace motley::envs
