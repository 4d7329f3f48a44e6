// The system calls that a sandbox may make.
#pragma once

#include <string>

namespace motley::envs {

/// A filter as the kernel takes it (an array of struct sock_filter). An allow list: what is not on it, ptrace, mounts,
/// namespaces, keys, BPF, io_uring and whatever a later kernel adds, fails with ENOSYS. Sockets are Unix and Internet
/// only, and the network namespace has a loopback device alone. Throws SandboxError.
std::string seccomp_filter();

}  // namespace motley::envs
