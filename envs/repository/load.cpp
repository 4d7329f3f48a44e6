// Reads tasks from JSON: one a line of a .jsonl file, or one a folder with its larger parts in files beside task.json.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "envs/jsonl.h"
#include "envs/repository/task.h"

namespace motley::envs {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMostText = size_t{1} << 20;  // of an issue, a command, a pattern
constexpr size_t kMostItems = 1000;            // of a list

struct Limit {
  const char* name;
  int64_t RepositoryLimits::*value;
  int64_t most;
};
constexpr Limit kLimits[]{{"turns", &RepositoryLimits::turns, 1000},
                          {"call_seconds", &RepositoryLimits::call_seconds, 3600},
                          {"episode_seconds", &RepositoryLimits::episode_seconds, 86400},
                          {"test_seconds", &RepositoryLimits::test_seconds, 86400},
                          {"memory_mib", &RepositoryLimits::memory_mib, 1048576},
                          {"disk_mib", &RepositoryLimits::disk_mib, 1048576},
                          {"processes", &RepositoryLimits::processes, 100000},
                          {"output_bytes", &RepositoryLimits::output_bytes, 1048576}};

std::string quoted(const std::string& name) { return "\"" + name + "\""; }

/// One task's object, with the place that messages begin with and the folder that paths are relative to.
class TaskReader {
 public:
  TaskReader(const Json& object, std::string place, fs::path base)
      : object_(object), place_(std::move(place)), base_(std::move(base)) {}

  RepositoryTask read(const std::string& id) {
    check_keys();
    RepositoryTask task;
    task.place = place_;
    task.id = id.empty() ? text("id") : id;
    check_id(task.id);
    task.issue = text("issue");
    task.test = text("test");
    task.tree = source("tree");
    task.tests = source("tests");
    read_fix(task);
    task.remove = list("remove");
    task.known_lines = list("known_lines");
    task.demonstration = list("demonstration");
    if (object_.contains("held_out")) {
      if (!object_["held_out"].is_boolean()) refuse("held_out", "must be true or false");
      task.held_out = object_["held_out"].get<bool>();
    }
    task.sets = list("sets");
    for (const std::string& set : task.sets) check_set(set);
    read_limits(task.limits);
    return task;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& reason) const {
    throw TaskError(place_ + ": " + quoted(key) + " " + reason);
  }

  void check_keys() const {
    static const std::set<std::string> known{"id",       "issue", "test",   "tree",        "tests",
                                             "fix",      "patch", "remove", "known_lines", "demonstration",
                                             "held_out", "sets",  "limits", "about"};
    for (const auto& [key, value] : object_.items()) {
      if (known.contains(key)) continue;
      std::string names;
      for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
      refuse(key, "is no key of a task; allowed: " + names + " (anything you like under \"about\")");
    }
  }

  void check_id(const std::string& id) const {
    const auto allowed = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    };
    if (id.size() > 100 || id.starts_with('.') || !std::all_of(id.begin(), id.end(), allowed))
      refuse("id", "must have at most 100 letters, digits, '.', '_' and '-', and not begin with '.'");
  }

  /// A set's name is part of the names of metrics.
  void check_set(const std::string& name) const {
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    if (name == kFullSet || name.size() > 40 || !std::all_of(name.begin(), name.end(), allowed))
      refuse("sets",
             "must be names of at most 40 characters out of a-z, 0-9, '_' and '-', and not \"full\", which is all");
  }

  std::string checked_text(const Json& value, const std::string& key) const {
    if (!value.is_string()) refuse(key, "must be text, but is " + std::string(value.type_name()));
    const std::string& text = value.get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) refuse(key, "is empty");
    if (text.size() > kMostText) refuse(key, "is longer than " + std::to_string(kMostText) + " bytes");
    if (text.find('\0') != std::string::npos) refuse(key, "holds a NUL character");
    return text;
  }

  std::string text(const std::string& key) const {
    if (!object_.contains(key)) refuse(key, "is missing");
    return checked_text(object_[key], key);
  }

  std::vector<std::string> list(const std::string& key) const {
    std::vector<std::string> values;
    if (!object_.contains(key)) return values;
    if (!object_[key].is_array() || object_[key].size() > kMostItems)
      refuse(key, "must be a list of at most " + std::to_string(kMostItems) + " texts");
    for (const Json& value : object_[key]) values.push_back(checked_text(value, key));
    return values;
  }

  /// A path, which must lead to something inside the task set's folder, or an object of paths and texts.
  TreeSource source(const std::string& key) const {
    if (!object_.contains(key)) refuse(key, "is missing");
    const Json& value = object_[key];
    if (value.is_string()) return inside(text(key), key);
    if (!value.is_object()) refuse(key, "must be a path, or an object of paths and their texts");
    WorkTree tree;
    for (const auto& [path, content] : value.items()) {
      if (!content.is_string())
        refuse(key, "must have text under " + quoted(path) + ", but has " + content.type_name());
      try {
        tree.add(path, {TreeEntry::Kind::file, false, content.get<std::string>()});
      } catch (const TaskError& error) {
        refuse(key, std::string("cannot hold ") + error.what());
      }
    }
    return tree;
  }

  fs::path inside(const std::string& text, const std::string& key) const {
    std::error_code error;
    const fs::path base = fs::canonical(base_, error), full = fs::canonical(base_ / text, error);
    if (error) refuse(key, "names " + text + ", which does not exist");
    const auto [at, rest] = std::mismatch(base.begin(), base.end(), full.begin(), full.end());
    if (fs::path(text).is_absolute() || at != base.end())
      refuse(key, "names " + text + ", which is outside of " + base_.string());
    return base_ / text;
  }

  void read_fix(RepositoryTask& task) const {
    const bool files = object_.contains("fix"), diff = object_.contains("patch");
    if (files && diff) refuse("patch", "and \"fix\" are two forms of one thing: give one");
    if (diff) {
      task.fix = text("patch");
      try {
        parse_patch(std::get<std::string>(task.fix));
      } catch (const TaskError& error) {
        refuse("patch", error.what());
      }
    }
    if (files) task.fix = source("fix");
  }

  void read_limits(RepositoryLimits& limits) const {
    if (!object_.contains("limits")) return;
    const Json& given = object_["limits"];
    if (!given.is_object()) refuse("limits", "must be an object");
    for (const auto& item : given.items()) {
      const std::string& name = item.key();
      const Json& value = item.value();
      const auto* limit =
          std::find_if(std::begin(kLimits), std::end(kLimits), [&](const Limit& l) { return l.name == name; });
      if (limit == std::end(kLimits)) {
        std::string names;
        for (const Limit& each : kLimits) names += (names.empty() ? "" : ", ") + std::string(each.name);
        refuse("limits", "has no " + quoted(name) + "; allowed: " + names);
      }
      if (!value.is_number_integer() || value.get<double>() < 1 ||
          value.get<double>() > static_cast<double>(limit->most))
        refuse("limits", quoted(name) + " must be a whole number from 1 to " + std::to_string(limit->most));
      limits.*(limit->value) = value.get<int64_t>();
    }
  }

  const Json& object_;
  std::string place_;
  fs::path base_;
};

std::string read_text(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw TaskError(file.string() + ": is no regular file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw TaskError(file.string() + ": cannot be opened");
  std::string text(kMostText + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMostText)
    throw TaskError(file.string() + ": is longer than " + std::to_string(kMostText) + " bytes");
  return text;
}

Json parse_object(const std::string& text, const std::string& place) {
  Json object;
  try {
    object = Json::parse(text);
  } catch (const Json::exception& error) {
    throw TaskError(place + ": not JSON: " + json_reason(error.what()));
  }
  if (!object.is_object()) throw TaskError(place + ": must be an object, but is " + object.type_name());
  return object;
}

void put_text(Json& object, const char* key, const fs::path& file) {
  if (fs::exists(file) && !object.contains(key)) object[key] = read_text(file);
}

/// task.json with what lies beside it: issue.md, tree, tests, and fix.patch or fix.
RepositoryTask load_folder_task(const fs::path& folder) {
  const fs::path file = folder / "task.json";
  Json object = parse_object(read_text(file), file.string());
  if (object.contains("id")) throw TaskError(file.string() + ": \"id\" is the folder's name; leave it out");
  put_text(object, "issue", folder / "issue.md");
  put_text(object, "patch", folder / "fix.patch");
  for (const char* key : {"tree", "tests", "fix"})
    for (const char* ending : {"", ".tar", ".tar.gz", ".tar.xz", ".tar.zst"})
      if (const std::string name = std::string(key) + ending; fs::exists(folder / name) && !object.contains(key))
        object[key] = name;
  return TaskReader(object, file.string(), folder).read(folder.filename().string());
}

std::vector<RepositoryTask> load_lines(const fs::path& path) {
  if (!fs::is_regular_file(path)) throw TaskError(path.string() + ": is no regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw TaskError(path.string() + ": cannot be opened");
  std::vector<RepositoryTask> tasks;
  std::string text;
  for (uint64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = path.string() + ":" + std::to_string(number);
    tasks.push_back(TaskReader(parse_object(text, place), place, fs::absolute(path).parent_path()).read(""));
  }
  if (file.bad()) throw TaskError(path.string() + ": cannot be read");
  return tasks;
}

std::vector<RepositoryTask> load_folders(const fs::path& path) {
  std::vector<RepositoryTask> tasks;
  for (const fs::directory_entry& found : fs::directory_iterator(path)) {
    if (found.path().filename().string().starts_with(".")) continue;
    if (!fs::exists(found.path() / "task.json"))
      throw TaskError(found.path().string() + ": holds no task.json; " + path.string() +
                      " holds one folder for each task");
    tasks.push_back(load_folder_task(found.path()));
  }
  return tasks;
}

}  // namespace

std::vector<RepositoryTask> load_repository_tasks(const fs::path& path) {
  std::vector<RepositoryTask> tasks;
  try {
    if (!fs::exists(path)) throw TaskError(path.string() + ": does not exist");
    const fs::path lines = fs::is_directory(path) ? path / "tasks.jsonl" : path;
    tasks = fs::exists(lines) ? load_lines(lines) : load_folders(path);
  } catch (const fs::filesystem_error& error) {
    throw TaskError(path.string() + ": " + error.code().message());
  }
  if (tasks.empty()) throw TaskError(path.string() + ": holds no task");
  std::sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 1; i < tasks.size(); ++i)
    if (tasks[i].id == tasks[i - 1].id)
      throw TaskError(tasks[i].place + ": the id " + tasks[i].id + " is that of " + tasks[i - 1].place);
  return tasks;
}

}  // namespace motley::envs
