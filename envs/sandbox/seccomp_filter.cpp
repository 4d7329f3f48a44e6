#include "envs/sandbox/seccomp_filter.h"

#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "envs/sandbox/limits.h"

namespace motley::envs {
namespace {

// Names that an architecture or libseccomp does not know are skipped. clone and socket are allowed by their arguments;
// clone3, whose arguments a filter cannot read, is refused, and libraries fall back to clone. Left out on purpose
// beside what needs privileges: memfd_create and shmget (memory that no process maps), ptrace and process_vm_*,
// io_uring, userfaultfd, perf_event_open, keyctl, bpf, open_by_handle_at, name_to_handle_at.
constexpr const char* allowed[] = {
    // files
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3",
    "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchownat", "fcntl",
    "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync",
    "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch", "inotify_init",
    "inotify_init1", "inotify_rm_watch", "ioctl", "lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr",
    "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open",
    "openat", "openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
    "readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir",
    "sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range",
    "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write",
    "writev",
    // memory
    "brk", "madvise", "membarrier", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "msync",
    "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages", "rseq",
    // processes and threads
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_waitv",
    "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getpgrp",
    "getpid", "getppid", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid",
    "getuid", "kill", "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "rt_sigaction", "rt_sigpending",
    "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_yield", "seccomp", "set_robust_list",
    "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setpgid", "setpriority",
    "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setuid", "sigaltstack", "sysinfo",
    "tgkill", "times", "tkill", "uname", "vfork", "wait4", "waitid",
    // time and waiting
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1", "epoll_ctl",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getitimer", "gettimeofday", "nanosleep",
    "pause", "poll", "ppoll", "pselect6", "restart_syscall", "select", "setitimer", "signalfd", "signalfd4", "time",
    "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create",
    "timerfd_gettime", "timerfd_settime",
    // sockets that are there already, and randomness
    "accept", "accept4", "bind", "connect", "getpeername", "getrandom", "getsockname", "getsockopt", "listen",
    "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socketpair"};

constexpr uint64_t new_namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                    CLONE_NEWPID | CLONE_NEWNET | 0x80U;  // CLONE_NEWTIME

void check(int result, const char* what) {
  if (result < 0) throw SandboxError(std::string("the system call filter: ") + what + ": " + std::strerror(-result));
}

void add_rules(scmp_filter_ctx filter) {
  for (const char* name : allowed) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call != __NR_SCMP_ERROR && call >= 0) check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0), name);
  }
  check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, new_namespaces, 0)),
        "clone");
  for (const uint64_t family : {AF_UNIX, AF_INET, AF_INET6})
    check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, family)), "socket");
}

std::string exported(scmp_filter_ctx filter) {
  const int fd = memfd_create("filter", MFD_CLOEXEC);
  if (fd < 0) check(-errno, "memfd_create");
  const int result = seccomp_export_bpf(filter, fd);
  std::string bytes(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  close(fd);
  check(result, "export");
  check(got == static_cast<ssize_t>(bytes.size()) ? 0 : -EIO, "export");
  return bytes;
}

}  // namespace

std::string seccomp_filter() {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
  if (filter == nullptr) throw SandboxError("the system call filter: libseccomp gave none");
  std::string bytes;
  try {
    add_rules(filter);
    bytes = exported(filter);
  } catch (...) {
    seccomp_release(filter);
    throw;
  }
  seccomp_release(filter);
  return bytes;
}

}  // namespace motley::envs
