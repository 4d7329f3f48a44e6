#include "envs/sandbox/bubblewrap.h"

#include <unistd.h>

#include <filesystem>

#include "envs/sandbox/helper/wire.h"

namespace motley::envs {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

void add(Arguments& arguments, const Arguments& more) { arguments.insert(arguments.end(), more.begin(), more.end()); }

/// /usr, and the folders beside it that are links into it on most systems.
void add_programs(Arguments& arguments) {
  add(arguments, {"--ro-bind", "/usr", "/usr"});
  for (const std::string name : {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    const fs::path path = "/" + name;
    std::error_code error;
    if (fs::is_symlink(path, error))
      add(arguments, {"--symlink", fs::read_symlink(path, error), path});
    else if (fs::is_directory(path, error))
      add(arguments, {"--ro-bind", path, path});
  }
  // What programs of /usr need to be found: the names of alternatives and the linker's tables.
  for (const std::string path : {"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"})
    add(arguments, {"--ro-bind-try", path, path});
}

void add_file_systems(Arguments& arguments, const SandboxLimits& limits) {
  const std::string disk = std::to_string(limits.disk_bytes);
  add(arguments, {"--proc", "/proc", "--dev", "/dev"});
  for (const char* folder : {wire::shared_memory_folder, wire::scratch_folder, wire::work_folder})
    add(arguments, {"--size", disk, "--tmpfs", folder});
  // bubblewrap's own file systems have no size, so nothing may be written there.
  add(arguments, {"--remount-ro", "/dev", "--remount-ro", "/"});
}

void add_environment(Arguments& arguments) {
  add(arguments, {"--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"});
  // The home folder is not the work tree, so that what programs leave there is in no patch.
  add(arguments, {"--setenv", "HOME", wire::scratch_folder, "--setenv", "TMPDIR", wire::scratch_folder});
  add(arguments, {"--setenv", "USER", "user", "--setenv", "LANG", "C.UTF-8", "--setenv", "TERM", "dumb"});
  add(arguments, {"--setenv", "PYTHONDONTWRITEBYTECODE", "1"});
}

}  // namespace

const char* const sandbox_passwd =
    "root:x:0:0:root:/:/usr/sbin/nologin\n"
    "user:x:1000:1000:user:/tmp:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
const char* const sandbox_group = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";

std::string find_bubblewrap() {
  for (const char* path : {"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"})
    if (access(path, X_OK) == 0) return path;
  return {};
}

std::vector<std::string> bubblewrap_arguments(const std::string& program, const SandboxLimits& limits) {
  Arguments arguments = {program,
                         "--unshare-user",
                         "--unshare-pid",
                         "--unshare-net",
                         "--unshare-ipc",
                         "--unshare-uts",
                         "--unshare-cgroup-try",
                         "--die-with-parent",
                         "--new-session",
                         "--as-pid-1",
                         "--cap-drop",
                         "ALL",
                         "--uid",
                         "1000",
                         "--gid",
                         "1000",
                         "--hostname",
                         "sandbox"};
  add_programs(arguments);
  for (const std::string& folder : limits.readable) add(arguments, {"--ro-bind", folder, folder});
  add(arguments, {"--perms", "0444", "--ro-bind-data", "6", "/etc/passwd"});
  add(arguments, {"--perms", "0444", "--ro-bind-data", "7", "/etc/group"});
  add_file_systems(arguments, limits);
  add_environment(arguments);
  add(arguments, {"--chdir", wire::work_folder, "--seccomp", "5", "--", "/proc/self/fd/4", "init"});
  return arguments;
}

}  // namespace motley::envs
