#include "envs/sandbox/support.h"

#include <fstream>

namespace motley::envs {
namespace {

/// True where the file of /proc holds this number; false where there is no such file.
bool reads(const char* path, long wanted) {
  std::ifstream in(path);
  long value = 0;
  return (in >> value) && value == wanted;
}

std::string mend_for(const std::string& failure) {
  if (failure.find("apt-get install") != std::string::npos) return "apt-get install bubblewrap";
  if (reads("/proc/sys/kernel/unprivileged_userns_clone", 0)) return "sysctl -w kernel.unprivileged_userns_clone=1";
  if (reads("/proc/sys/user/max_user_namespaces", 0)) return "sysctl -w user.max_user_namespaces=15000";
  if (reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1))
    return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
  if (failure.find("mount proc") != std::string::npos)
    return "start this container with --security-opt systempaths=unconfined --security-opt seccomp=unconfined";
  if (failure.find("namespace") != std::string::npos)
    return "user namespaces are off: on the machine, sysctl -w user.max_user_namespaces=15000; for a container, "
           "--security-opt seccomp=unconfined";
  return "see docs/sandbox.md";
}

}  // namespace

SandboxSupport examine_sandboxes() {
  try {
    SandboxHost host;
    Sandbox sandbox(host);
    const CallResult result = sandbox.call("echo works");
    if (result.output != "works\n")
      return {false, "a sandbox starts, but its shell says: " + result.output, mend_for("")};
    const std::string memory =
        host.cgroups()
            ? "memory and processes limited by cgroups, version " + std::to_string(host.cgroups()->version())
            : "no cgroup that can be written: memory watched 20 times a second, processes limited by rlimits";
    return {true, "bubblewrap with own namespaces and a system call filter; " + memory, ""};
  } catch (const SandboxError& error) {
    const std::string failure = error.what();
    return {false, "none: " + failure, mend_for(failure)};
  }
}

void require_sandboxes() {
  const SandboxSupport support = examine_sandboxes();
  if (!support.works)
    throw SandboxError("this machine makes no sandboxes, and nothing runs without: " + support.state + "; " +
                       support.mend);
}

}  // namespace motley::envs
