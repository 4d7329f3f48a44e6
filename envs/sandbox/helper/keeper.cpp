#include "envs/sandbox/helper/keeper.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "envs/sandbox/helper/system.h"
#include "envs/sandbox/helper/wire.h"

namespace motley::envs {
namespace {

constexpr int most_descriptors = 16;
constexpr int clear_attempts = 300, clear_interval = 10;  // milliseconds
constexpr int first_inherited = 3;

struct Sandbox {
  uint64_t id = 0;
  pid_t monitor = 0;                 // bubblewrap's outer process; 0: it ended
  int life = -1;                     // closed once everything is cleared away
  std::vector<std::string> folders;  // its cgroups
  int attempts = 0;
};

/// What motley asks for: see Keeper::spawn in envs/sandbox/keeper.h.
struct Order {
  uint64_t id = 0;
  uint32_t user = 0;  // to become first; 0: stay
  std::vector<std::string> folders;
  std::vector<std::string> settings;  // path, value, path, value, ...
  std::vector<std::string> arguments;
  std::vector<int> descriptors;  // the first becomes standard error, the others 3, 4, ...
};

std::vector<std::string> texts(wire::Reader& in) {
  std::vector<std::string> list(in.u32());
  for (std::string& text : list) text = in.text();
  return list;
}

bool write_file(const std::string& path, std::string_view value) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool wrote = write_all(fd, value);
  close(fd);
  return wrote;
}

[[noreturn]] void fail(const std::string& what) {
  const std::string line = what + ": " + strerror(errno) + "\n";
  write_all(STDERR_FILENO, line);
  _exit(1);
}

/// The child: joins the cgroups, gives up root, becomes bubblewrap.
[[noreturn]] void become_sandbox(const Order& order) {
  std::vector<int> moved;  // out of the way of the numbers that are to be filled
  for (const int fd : order.descriptors)
    moved.push_back(fcntl(fd, F_DUPFD_CLOEXEC, first_inherited + most_descriptors));
  for (size_t i = 0; i < moved.size(); ++i)
    dup2(moved[i], i == 0 ? STDERR_FILENO : first_inherited + static_cast<int>(i) - 1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  for (const std::string& folder : order.folders)
    if (!write_file(folder + "/cgroup.procs", "0")) fail(folder + "/cgroup.procs");
  if (order.user != 0 && (setgroups(0, nullptr) != 0 || setresgid(order.user, order.user, order.user) != 0 ||
                          setresuid(order.user, order.user, order.user) != 0))
    fail("cannot become user " + std::to_string(order.user));
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // bubblewrap asks for it too, a moment later
  std::vector<char*> arguments;
  for (const std::string& argument : order.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  char* environment[] = {nullptr};
  execve(arguments[0], arguments.data(), environment);
  fail(order.arguments[0]);
}

void complain(int life, const std::string& what) {
  const std::string line = what + ": " + strerror(errno) + "\n";
  write_all(life, line);
}

class Sandboxes {
 public:
  void start(Order order) {
    Sandbox sandbox{order.id, 0, order.descriptors.at(0), order.folders};
    for (const std::string& folder : order.folders)
      if (make_cgroup(folder) != 0) return give_up(sandbox, folder);
    for (size_t i = 0; i + 1 < order.settings.size(); i += 2)
      if (!write_file(order.settings[i], order.settings[i + 1])) return give_up(sandbox, order.settings[i]);
    sandbox.monitor = fork();
    if (sandbox.monitor == 0) become_sandbox(order);
    if (sandbox.monitor < 0) return give_up(sandbox, "fork");
    list_.push_back(sandbox);
  }

  /// Ends one at once. Its first process is the monitor's child, and takes everything with it.
  void end(uint64_t id) {
    for (const Sandbox& sandbox : list_)
      if (sandbox.id == id || id == 0) end(sandbox);
  }

  /// Waits for children, clears away what is left of the sandboxes that ended.
  void tend() {
    for (pid_t pid = 0; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;)
      for (Sandbox& sandbox : list_)
        if (sandbox.monitor == pid) sandbox.monitor = 0;
    for (auto it = list_.begin(); it != list_.end();)
      it = it->monitor == 0 && clear(*it) ? list_.erase(it) : std::next(it);
  }
  bool empty() const { return list_.empty(); }
  void remove_run_folders() const {
    for (const std::string& folder : run_folders_) rmdir(folder.c_str());
  }
  /// Some ended and are not cleared away yet.
  bool unfinished() const {
    for (const Sandbox& sandbox : list_)
      if (sandbox.monitor == 0) return true;
    return false;
  }

 private:
  int make_cgroup(const std::string& folder) {
    const std::string run_folder = folder.substr(0, folder.rfind('/'));  // made with the run's first sandbox
    if (run_folders_.insert(run_folder).second) mkdir(run_folder.c_str(), 0755);
    return mkdir(folder.c_str(), 0755);
  }

  static void end(const Sandbox& sandbox) {
    if (sandbox.monitor == 0) return;
    const std::string pid = std::to_string(sandbox.monitor);
    const std::string children = read_small_file(("/proc/" + pid + "/task/" + pid + "/children").c_str());
    const long child = strtol(children.c_str(), nullptr, 10);
    kill(child > 1 ? static_cast<pid_t>(child) : sandbox.monitor, SIGKILL);
  }

  /// True when nothing is left (or nothing more can be done about it).
  static bool clear(Sandbox& sandbox) {
    bool left = false;
    for (const std::string& folder : sandbox.folders) {
      if (rmdir(folder.c_str()) == 0 || errno == ENOENT) continue;
      left = true;
      const std::string members = read_small_file((folder + "/cgroup.procs").c_str());
      for (const char* at = members.c_str(); *at != '\0';) {
        char* end = nullptr;
        const long pid = strtol(at, &end, 10);
        if (end == at) break;
        if (pid > 1) kill(static_cast<pid_t>(pid), SIGKILL);
        at = end;
      }
    }
    if (left && ++sandbox.attempts < clear_attempts) return false;
    close(sandbox.life);
    return true;
  }

  void give_up(Sandbox sandbox, const std::string& what) {
    complain(sandbox.life, what);
    list_.push_back(std::move(sandbox));
  }

  std::list<Sandbox> list_;
  std::set<std::string> run_folders_;
};

/// One message and its descriptors; false when motley is gone.
bool receive(int socket, std::string& message, std::vector<int>& descriptors) {
  message.resize(1U << 16);
  iovec data{message.data(), message.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * most_descriptors)];
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = room;
  header.msg_controllen = sizeof room;
  ssize_t got = 0;
  while ((got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got <= 0) return false;
  message.resize(static_cast<size_t>(got));
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = descriptors.size();
    descriptors.resize(before + count);
    std::memcpy(descriptors.data() + before, CMSG_DATA(part), count * sizeof(int));
  }
  return true;
}

void obey(Sandboxes& sandboxes, const std::string& message, std::vector<int> descriptors) {
  wire::Reader in(message);
  Order order;
  order.id = in.u64();
  order.user = in.u32();
  order.folders = texts(in);
  order.settings = texts(in);
  order.arguments = texts(in);
  order.descriptors = descriptors;
  if (order.arguments.empty()) return sandboxes.end(order.id);
  if (descriptors.empty()) return;
  sandboxes.start(order);
  for (size_t i = 1; i < descriptors.size(); ++i) close(descriptors[i]);
}

void detach(int socket) {
  setsid();  // Ctrl-C and hang-ups of motley's terminal are motley's to handle
  close_range(static_cast<unsigned>(socket) + 1, ~0U, 0);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
  if (nothing > socket) close(nothing);
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace

int keep_sandboxes(int socket) {
  detach(socket);
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  const int ended = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  Sandboxes sandboxes;
  bool served = true;
  while (served || !sandboxes.empty()) {
    pollfd fds[2] = {{served ? socket : -1, POLLIN, 0}, {ended, POLLIN, 0}};
    poll(fds, 2, sandboxes.unfinished() || !served ? clear_interval : -1);
    signalfd_siginfo info[16];
    while (read(ended, info, sizeof info) > 0) {
    }
    sandboxes.tend();
    if (!served) sandboxes.end(0);
    std::string message;
    std::vector<int> descriptors;
    if (fds[0].revents == 0) continue;
    served = receive(socket, message, descriptors);
    if (served) obey(sandboxes, message, std::move(descriptors));
  }
  sandboxes.remove_run_folders();
  return 0;
}

}  // namespace motley::envs
