#include "envs/repository/generate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "envs/held_out.h"
#include "envs/repository/small_task.h"

namespace motley::envs {

namespace {

struct Drawn {
  SmallTask task;
  /// The same issue on another tree is another task, and the other way round.
  std::string identity() const {
    std::string text = task.issue;
    for (const auto& [path, content] : task.before) text += "\n" + path + "\n" + content;
    return text;
  }
};

SmallTask draw(size_t family, kernels::RandomStream& random) {
  static constexpr SmallTask (*kDraw[])(kernels::RandomStream&) = {draw_files, draw_lines, draw_bash, draw_awk,
                                                                   draw_python};
  return kDraw[family](random);
}

WorkTree tree_of(const Files& files) {
  WorkTree tree;
  for (const auto& [path, content] : files) tree.add(path, {TreeEntry::Kind::file, false, content});
  return tree;
}

RepositoryTask task_of(std::string_view family, uint64_t index, const SmallTask& small, bool held_out) {
  const std::string id = std::string(family) + (held_out ? "-h" : "-") + std::to_string(index);
  RepositoryTask task;
  task.id = id;
  task.place = "generated task " + id;
  task.issue = small.issue;
  task.test = small.test;
  const WorkTree before = tree_of(small.before);
  task.fix = make_patch(before, tree_of(small.after));
  task.tree = before;
  task.tests = tree_of(small.tests);
  task.demonstration = small.demonstration;
  task.held_out = held_out;
  task.sets = {std::string(family)};
  if (task.demonstration.size() > 1) task.sets.emplace_back("hard");
  task.limits = {
      .turns = 8, .call_seconds = 5, .episode_seconds = 30, .test_seconds = 20, .memory_mib = 256, .disk_mib = 16};
  return task;
}

nlohmann::ordered_json files_of(const TreeSource& source) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [path, entry] : std::get<WorkTree>(source).entries()) files[path] = entry.content;
  return files;
}

}  // namespace

const std::vector<std::string>& task_families() {
  static const std::vector<std::string> names{"files", "lines", "bash", "awk", "python"};
  return names;
}

const std::vector<std::string>& task_symbols() {
  static const std::vector<std::string> symbols = [] {
    // Separated by '~'.
    const std::string_view pieces =
        "rename ~copy ~remove ~put ~delete line ~insert ~ before line ~append ~ in pen~ pen~pen/~"
        " gives ~, not ~ for ~ to ~ of ~in ~bash ~cat ~mv ~cp ~rm ~sed -i ~'s/~s/~/' ~/ ~echo ~ >>~.sh~"
        ".awk~.py~ f(~def f(a~):\n    return ~[a, b, c][~(a, b)~, b~, c~a ~echo $(($1 ~))~ $2~ $1~"
        "if [ $1 ~ ]; then echo ~; else echo ~; fi~yes~no~{ print ~($1 ~ ? \"yes\" : \"no\") }~ }~"
        "\", $1 }~$1 ~-gt~-lt~max~min~sum~mul~inc~say~top~ask~col~[~]~$~";
    std::vector<std::string> all;
    for (size_t at = 0; at < pieces.size(); at = pieces.find('~', at) + 1)
      all.emplace_back(pieces.substr(at, pieces.find('~', at) - at));
    for (const auto* words : {&animals(), &colours()}) all.insert(all.end(), words->begin(), words->end());
    return all;
  }();
  return symbols;
}

RepositoryTask generate_task(std::string_view family, uint64_t seed, uint64_t index, bool held_out) {
  const auto& names = task_families();
  const auto found = std::find(names.begin(), names.end(), family);
  if (found == names.end())
    throw TaskError("no family " + std::string(family) + " of tasks; there are files, lines, bash, awk, python");
  const auto number = static_cast<size_t>(found - names.begin());
  const uint64_t stream = kernels::mix(seed, number);
  const Drawn drawn =
      draw_problem(stream, index, held_out, [&](kernels::RandomStream& random) { return Drawn{draw(number, random)}; });
  return task_of(family, index, drawn.task, held_out);
}

std::vector<RepositoryTask> generate_tasks(uint64_t seed, uint64_t count, const std::vector<std::string>& families) {
  std::vector<RepositoryTask> tasks;
  std::set<std::string> seen;
  std::vector<uint64_t> next(families.size() * 2, 0);
  for (uint64_t n = 0; n < count; ++n) {
    const size_t family = n % families.size();
    const bool held_out = n / families.size() % kHeldOutOneIn == 0;
    uint64_t& index = next[family * 2 + (held_out ? 1 : 0)];
    for (const uint64_t start = index;;) {
      RepositoryTask task = generate_task(families[family], seed, index++, held_out);
      const std::string what = task.issue + "\n" + files_of(task.tree).dump();
      if (seen.insert(what).second) {
        tasks.push_back(std::move(task));
        break;
      }
      if (index - start > 1000) throw TaskError("there are too few different tasks of family " + families[family]);
    }
  }
  return tasks;
}

std::string to_json_line(const RepositoryTask& task) {
  nlohmann::ordered_json json{{"id", task.id}, {"issue", task.issue}, {"test", task.test}};
  json["tree"] = files_of(task.tree);
  json["tests"] = files_of(task.tests);
  if (const auto* patch = std::get_if<std::string>(&task.fix)) json["patch"] = *patch;
  if (!task.demonstration.empty()) json["demonstration"] = task.demonstration;
  if (task.held_out) json["held_out"] = *task.held_out;
  if (!task.sets.empty()) json["sets"] = task.sets;
  const RepositoryLimits &l = task.limits, usual;
  nlohmann::ordered_json limits = nlohmann::ordered_json::object();
  const auto put = [&](const char* name, int64_t value, int64_t standard) {
    if (value != standard) limits[name] = value;
  };
  put("turns", l.turns, usual.turns);
  put("call_seconds", l.call_seconds, usual.call_seconds);
  put("episode_seconds", l.episode_seconds, usual.episode_seconds);
  put("test_seconds", l.test_seconds, usual.test_seconds);
  put("memory_mib", l.memory_mib, usual.memory_mib);
  put("disk_mib", l.disk_mib, usual.disk_mib);
  put("processes", l.processes, usual.processes);
  put("output_bytes", l.output_bytes, usual.output_bytes);
  if (!limits.empty()) json["limits"] = limits;
  return json.dump() + "\n";
}

}  // namespace motley::envs
