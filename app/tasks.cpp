#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input_error.h"
#include "envs/repository/generate.h"
#include "envs/repository/prove.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

int generate(const TasksArguments& arguments) {
  const fs::path folder = arguments.path, file = folder / "tasks.jsonl";
  if (fs::exists(file)) throw InputError({file.string()}, "exists already", "name another folder, or remove it");
  if (fs::exists(folder) && !fs::is_directory(folder)) throw InputError({folder.string()}, "is no folder");
  std::string lines;
  int64_t held_out = 0;
  for (const envs::RepositoryTask& task :
       envs::generate_tasks(arguments.seed, static_cast<uint64_t>(arguments.count))) {
    lines += envs::to_json_line(task);
    held_out += *task.held_out;
  }
  fs::create_directories(folder);
  write_file_atomically(file, lines);
  const std::string text =
      arguments.json
          ? nlohmann::json{{"file", file.string()}, {"tasks", arguments.count}, {"held_out", held_out}}.dump()
          : fmt::format("{}: {} tasks, {} of them held out", file.string(), arguments.count, held_out);
  std::printf("%s\n", text.c_str());
  return 0;
}

std::vector<std::string> problems_of(const envs::RepositoryTask& task, envs::SandboxHost* host) {
  std::vector<std::string> problems = envs::inspect_task(task);
  if (problems.empty() && host) problems = envs::prove_task(*host, task);
  return problems;
}

int check(const TasksArguments& arguments) {
  const std::vector<envs::RepositoryTask> tasks = envs::load_repository_tasks(arguments.path);
  std::unique_ptr<envs::SandboxHost> host;
  if (!arguments.no_run) {
    try {
      host = std::make_unique<envs::SandboxHost>();
      const envs::Sandbox trial(*host);
    } catch (const envs::SandboxError& error) {
      throw std::runtime_error(std::string(error.what()) + "; --no-run checks what shows without running anything");
    }
  }
  nlohmann::json found = nlohmann::json::object();
  for (const envs::RepositoryTask& task : tasks) {
    const std::vector<std::string> problems = problems_of(task, host.get());
    if (problems.empty()) continue;
    found[task.id] = problems;
    for (const std::string& problem : problems)
      if (!arguments.json) std::printf("%s: %s\n", task.id.c_str(), problem.c_str());
  }
  if (arguments.json) {
    const nlohmann::json result{{"tasks", tasks.size()}, {"run", host != nullptr}, {"problems", found}};
    std::printf("%s\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::printf("%zu tasks, %zu with problems%s\n", tasks.size(), found.size(), host ? "" : "; nothing was run");
  }
  return found.empty() ? 0 : 1;
}

}  // namespace

int tasks_command(const TasksArguments& arguments) {
  return arguments.action == "generate" ? generate(arguments) : check(arguments);
}

}  // namespace motley::app
