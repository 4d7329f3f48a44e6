// How bubblewrap is called.
#pragma once

#include <string>
#include <vector>

#include "envs/sandbox/limits.h"

namespace motley::envs {

/// Path of the program; empty where it is not installed.
std::string find_bubblewrap();

/// The whole command line: own user, process, mount, network, IPC, UTS and cgroup namespaces; the programs of this
/// machine read-only; work tree, /tmp and /dev/shm as file systems in memory with a size; everything else unwritable.
/// Descriptors: 3 motley's socket, 4 the program that becomes the first process, 5 the system call filter, 6 and 7 the
/// contents of /etc/passwd and /etc/group.
std::vector<std::string> bubblewrap_arguments(const std::string& program, const SandboxLimits& limits);

extern const char* const sandbox_passwd;
extern const char* const sandbox_group;

}  // namespace motley::envs
