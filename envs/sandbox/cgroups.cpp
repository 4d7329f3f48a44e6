#include "envs/sandbox/cgroups.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace motley::envs {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& parts, const std::string& wanted) {
  for (const std::string& part : parts)
    if (part == wanted) return true;
  return false;
}

/// The cgroup that this process is in: of a controller of version 1, or (empty name) of version 2.
std::string own_path(const std::string& controller) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : contains(split(names, ','), controller)) return line.substr(second + 1);
  }
  return {};
}

struct Mount {
  std::string root, point;
};

/// Where cgroups are mounted: version 1 with the controller, or (empty name) version 2.
std::optional<Mount> find_mount(const std::string& controller) {
  std::ifstream in("/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {  // ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS
    const std::vector<std::string> parts = split(line, ' ');
    size_t dash = 6;
    while (dash < parts.size() && parts[dash] != "-") ++dash;
    if (dash + 3 >= parts.size()) continue;
    const bool right = controller.empty()
                           ? parts[dash + 1] == "cgroup2"
                           : parts[dash + 1] == "cgroup" && contains(split(parts[dash + 3], ','), controller);
    if (right) return Mount{parts[3], parts[4]};
  }
  return std::nullopt;
}

/// The folder of the own cgroup. A mount may show a part of the hierarchy only.
std::string own_folder(const Mount& mount, std::string path) {
  if (mount.root != "/" && path.starts_with(mount.root)) path.erase(0, mount.root.size());
  const std::string folder = path == "/" ? mount.point : mount.point + path;
  std::error_code error;
  return fs::is_directory(folder, error) ? folder : mount.point;
}

/// When the process started, in clock ticks since the machine did; empty where there is none.
std::string start_time(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t name_end = text.rfind(')');  // the name may hold blanks and parentheses
  if (name_end == std::string::npos) return {};
  const std::vector<std::string> fields = split(text.substr(name_end + 2), ' ');
  return fields.size() > 19 ? fields[19] : std::string();
}

/// "motley-PID-START-NUMBER": not used by this or another process until the machine starts anew.
std::string unused_folder_name() {
  static std::atomic<int> number{0};
  const std::string pid = std::to_string(getpid());
  return "motley-" + pid + "-" + start_time(pid) + "-" + std::to_string(number++);
}

bool can_make_folders(const std::string& place) {
  const std::string trial = place + "/" + unused_folder_name();
  return mkdir(trial.c_str(), 0755) == 0 && rmdir(trial.c_str()) == 0;
}

bool hands_on(const std::string& folder) {
  std::ifstream in(folder + "/cgroup.subtree_control");
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> controllers = split(line, ' ');
  return contains(controllers, "memory") && contains(controllers, "pids");
}

void kill_members(const fs::path& folder) {
  std::ifstream in(folder / "cgroup.procs");
  for (pid_t pid = 0; in >> pid;)
    if (pid > 1) kill(pid, SIGKILL);
}

void remove_run(const fs::path& run) {
  std::error_code error;
  for (int attempt = 0; attempt < 50; ++attempt) {
    for (const fs::directory_entry& entry : fs::directory_iterator(run, error)) {
      if (!entry.is_directory(error)) continue;
      kill_members(entry.path());
      rmdir(entry.path().c_str());
    }
    if (rmdir(run.c_str()) == 0 || errno == ENOENT) return;
    usleep(10000);
  }
}

}  // namespace

Cgroups::Cgroups(int version, std::string memory, std::string pids)
    : version_(version), memory_(std::move(memory)), pids_(std::move(pids)), run_(unused_folder_name()) {}

std::optional<Cgroups> Cgroups::find() {
  const std::optional<Mount> memory = find_mount("memory"), pids = find_mount("pids");
  if (memory && pids) {
    Cgroups found(1, own_folder(*memory, own_path("memory")), own_folder(*pids, own_path("pids")));
    if (can_make_folders(found.memory_) && can_make_folders(found.pids_)) return found;
  }
  const std::optional<Mount> unified = find_mount("");
  if (!unified) return std::nullopt;
  std::string folder = own_folder(*unified, own_path(""));
  while (!hands_on(folder) && folder != unified->point) folder = fs::path(folder).parent_path();
  if (!hands_on(folder) || !can_make_folders(folder)) return std::nullopt;
  return Cgroups(2, folder, folder);
}

std::string Cgroups::folder(const std::string& place, uint64_t id) const {
  return place + "/" + run_ + "/" + std::to_string(id);
}

CgroupOrder Cgroups::order(uint64_t id, const SandboxLimits& limits) const {
  const std::string bytes = std::to_string(limits.memory_bytes);
  // bubblewrap's two processes and the first one of the sandbox count here, and not against the user's limit.
  const std::string processes = std::to_string(limits.processes + 4);
  const std::string memory = folder(memory_, id), pids = folder(pids_, id);
  if (version_ == 2) {
    CgroupOrder order{{memory}, {memory_ + "/" + run_ + "/cgroup.subtree_control", "+memory +pids"}};
    order.settings.insert(order.settings.end(), {memory + "/memory.max", bytes, memory + "/pids.max", processes});
    if (fs::exists("/proc/swaps") && fs::exists(memory_ + "/memory.swap.max"))
      order.settings.insert(order.settings.end(), {memory + "/memory.swap.max", "0"});
    return order;
  }
  CgroupOrder order{{memory, pids}, {memory + "/memory.limit_in_bytes", bytes, pids + "/pids.max", processes}};
  if (fs::exists(memory_ + "/memory.memsw.limit_in_bytes"))
    order.settings.insert(order.settings.end(), {memory + "/memory.memsw.limit_in_bytes", bytes});
  return order;
}

uint64_t Cgroups::memory_kills(uint64_t id) const {
  std::ifstream in(folder(memory_, id) + (version_ == 2 ? "/memory.events" : "/memory.oom_control"));
  std::string key;
  for (uint64_t value = 0; in >> key >> value;)
    if (key == "oom_kill") return value;
  return 0;
}

int remove_stale_cgroups(const std::string& place) {
  int removed = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
    const std::vector<std::string> parts = split(entry.path().filename().string(), '-');  // motley-PID-START-NUMBER
    if (parts.size() != 4 || parts[0] != "motley" || start_time(parts[1]) == parts[2]) continue;
    remove_run(entry.path());
    ++removed;
  }
  return removed;
}

}  // namespace motley::envs
