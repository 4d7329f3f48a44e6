#include "tests/fleet/network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

namespace motley::fleet {
namespace {

/// Calls `work` in a forked child and hands over its result, 0 or an errno, while the child still lives, to `then`.
int in_child(const std::function<int()>& work, const std::function<void(pid_t)>& then) {
  int ready[2], release[2];
  if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(release, O_CLOEXEC) != 0) return errno;
  Descriptor ready_read(ready[0]), ready_write(ready[1]), release_read(release[0]), release_write(release[1]);
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    release_write.close();  // else it would never see the parent's end
    const int result = work();
    char none = 0;
    if (::write(ready_write.get(), &result, sizeof result) == sizeof result)
      while (::read(release_read.get(), &none, 1) < 0 && errno == EINTR) continue;
    ::_exit(0);
  }
  ready_write.close();
  int result = ECHILD;
  if (::read(ready_read.get(), &result, sizeof result) == sizeof result && result == 0) then(child);
  release_write.close();
  ::waitpid(child, nullptr, 0);
  return result;
}

int write_text(const char* path, const std::string& text) {
  const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
  return file.open() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : errno;
}

/// The child becomes root of a user namespace that holds nobody else.
int own_user_namespace() {
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER) != 0) return errno;
  if (const int error = write_text("/proc/self/setgroups", "deny")) return error;
  if (const int error = write_text("/proc/self/uid_map", "0 " + user + " 1")) return error;
  return write_text("/proc/self/gid_map", "0 " + group + " 1");
}

Descriptor namespace_of(pid_t process, const char* kind) {
  const std::string path = "/proc/" + std::to_string(process) + "/ns/" + kind;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) throw Unavailable(path + ": " + std::strerror(errno));
  return file;
}

/// A network namespace: in a user namespace that is `shared`, a new one, or with the rights that the process has.
Namespaces make_namespaces(const Descriptor* shared, bool new_user) {
  Namespaces made;
  const int error = in_child(
      [&] {
        if (shared && ::setns(shared->get(), CLONE_NEWUSER) != 0) return errno;
        if (new_user)
          if (const int failed = own_user_namespace()) return failed;
        return ::unshare(CLONE_NEWNET) == 0 ? 0 : errno;
      },
      [&](pid_t child) {
        made.network = namespace_of(child, "net");
        if (shared || new_user) made.user = namespace_of(child, "user");
      });
  if (error != 0)
    throw Unavailable(
        std::string(new_user || shared ? "no network in a user namespace of its own" : "no network namespace") + ": " +
        std::strerror(error));
  return made;
}

/// Lines for `ip -batch`, run in a machine.
void configure(const Machine& machine, const std::string& lines, std::vector<int> kept = {}) {
  std::string output;
  try {
    const int code = run_to_end(
        {.words = {"ip", "-batch", "-"}, .kept = std::move(kept), .inside = &machine.namespaces()}, lines, output);
    if (code != 0) throw Unavailable("ip failed with code " + std::to_string(code) + ": " + output);
  } catch (const Unavailable&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw Unavailable(error.what());
  }
}

std::string port_name(size_t index) { return "port" + std::to_string(index); }

}  // namespace

Network::Network(int machines, Rights rights) {
  bool own_user = rights == Rights::own_user_namespace;
  if (!own_user) try {
      switch_.namespaces_ = make_namespaces(nullptr, false);
    } catch (const Unavailable&) {
      own_user = true;
    }
  if (own_user) switch_.namespaces_ = make_namespaces(nullptr, true);

  std::string lines = "link add bridge type bridge\nlink set bridge up\n";
  std::vector<int> kept;
  for (size_t i = 0; i < static_cast<size_t>(machines); ++i) {
    Machine& machine = machines_.emplace_back();
    machine.namespaces_ = make_namespaces(own_user ? &switch_.namespaces_.user : nullptr, false);
    machine.address_ = "10.77.0." + std::to_string(i + 1);
    const int network = machine.namespaces_.network.get();
    kept.push_back(network);
    lines += "link add " + port_name(i) + " type veth peer name eth0 netns /proc/self/fd/" + std::to_string(network) +
             "\nlink set " + port_name(i) + " master bridge up\n";
  }
  configure(switch_, lines, kept);
  for (const Machine& machine : machines_)
    configure(machine, "link set lo up\naddr add " + machine.address() +
                           "/24 dev eth0\nlink set eth0 up\n"
                           // After a cable is put back, addresses are asked for again at once, not after a second.
                           "ntable change name arp_cache dev eth0 retrans 20\n");
}

void Network::set_port(int index, const char* state) const {
  (void)machine(index);
  configure(switch_, "link set " + port_name(static_cast<size_t>(index)) + " " + state + "\n");
}
void Network::unplug(int index) const { set_port(index, "down"); }
void Network::plug(int index) const { set_port(index, "up"); }

std::string Network::identity() const {
  std::string text;
  for (const Machine& machine : machines_) {
    struct stat found {};
    if (::fstat(machine.namespaces().network.get(), &found) == 0) text += "net:[" + std::to_string(found.st_ino) + "] ";
  }
  return text;
}

Descriptor Machine::socket() const {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair failed");
  const Descriptor ours(ends[0]), theirs(ends[1]);
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int received = -1;
  const int error = in_child(
      [&] {
        if (!namespaces_.enter()) return errno;
        const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (made < 0) return errno;
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof made);
        std::memcpy(CMSG_DATA(header), &made, sizeof made);
        return ::sendmsg(theirs.get(), &message, 0) == 1 ? 0 : errno;
      },
      [&](pid_t) {
        if (::recvmsg(ours.get(), &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message)) return;
        std::memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
      });
  if (received < 0) throw std::runtime_error(std::string("no socket of a machine: ") + std::strerror(error));
  return Descriptor(received);
}

bool networks_available() {
  try {
    const Network network(1);
    return true;
  } catch (const Unavailable& reason) {
    std::printf("skipped: %s\n", reason.what());
    std::fflush(stdout);
    return false;
  }
}

}  // namespace motley::fleet
