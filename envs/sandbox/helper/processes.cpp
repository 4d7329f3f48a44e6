#include "envs/sandbox/helper/processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "envs/sandbox/helper/system.h"

namespace motley::envs {
namespace {

constexpr const char* file_systems[] = {wire::work_folder, wire::scratch_folder, wire::shared_memory_folder};

std::string proc_path(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

/// Resident bytes, shared pages and mapped programs included.
uint64_t resident(pid_t pid) {
  const std::string text = read_small_file(proc_path(pid, "statm").c_str());
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return 0;
  return strtoull(text.c_str() + blank, nullptr, 10) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Its share of anonymous and shared memory, without mapped programs.
uint64_t proportional(pid_t pid) {
  const std::string text = read_small_file(proc_path(pid, "smaps_rollup").c_str());
  uint64_t kib = 0;
  for (const char* key : {"Pss_Anon:", "Pss_Shmem:"}) {
    const size_t at = text.find(key);
    if (at != std::string::npos) kib += strtoull(text.c_str() + at + std::string_view(key).size(), nullptr, 10);
  }
  return kib * 1024;
}

}  // namespace

std::set<pid_t> sandbox_processes() {
  std::set<pid_t> pids;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder)) {
    const long pid = strtol(entry->d_name, nullptr, 10);
    if (pid > 1) pids.insert(static_cast<pid_t>(pid));
  }
  closedir(folder);
  return pids;
}

void kill_everything() {
  kill(-1, SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

void kill_others(const std::set<pid_t>& kept) {
  for (int round = 0; round < 5; ++round) {
    for (const pid_t pid : sandbox_processes())
      if (!kept.contains(pid)) kill(pid, SIGKILL);
    usleep(2000);
  }
}

uint64_t sandbox_memory(uint64_t enough) {
  uint64_t held = 0;
  for (const char* path : file_systems) {
    struct statvfs info {};
    if (statvfs(path, &info) == 0) held += (info.f_blocks - info.f_bfree) * info.f_frsize;
  }
  const std::set<pid_t> pids = sandbox_processes();
  uint64_t most = held;
  for (const pid_t pid : pids) most += resident(pid);
  if (most <= enough) return most;
  for (const pid_t pid : pids) held += proportional(pid);
  return held;
}

uint64_t sandbox_files() {
  uint64_t files = 0;
  for (const char* path : file_systems) {
    struct statvfs info {};
    if (statvfs(path, &info) == 0) files += info.f_files - info.f_ffree;
  }
  return files;
}

wire::Killed beyond_limits(uint64_t memory, uint64_t files) {
  if (memory > 0 && sandbox_memory(memory) > memory) return wire::Killed::memory;
  return sandbox_files() > files ? wire::Killed::files : wire::Killed::no;
}

}  // namespace motley::envs
