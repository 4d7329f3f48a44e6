#include "tests/fleet/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/fleet/deadline.h"

namespace motley::fleet {
namespace {

constexpr Seconds kRunLimit{10};

std::runtime_error failure(const std::string& what) { return std::runtime_error(what + ": " + std::strerror(errno)); }

/// Everything that the child does before exec: system calls only, since other threads may have held locks at the fork.
/// Returns the step that failed, with errno.
const char* become(const SpawnRequest& request, pid_t parent, int null, char* const* argv, char* const* environment) {
  if (request.inside && !request.inside->enter()) return "enter namespaces";
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return "set the parent's death signal";
  // After a change of namespaces getppid() may be 0 where the parent cannot be seen; ours are not of processes.
  if (::getppid() != parent) return "start: the parent is gone";
  if (!request.folder.empty() && ::chdir(request.folder.c_str()) != 0) return "enter the folder";
  const int streams[] = {request.in, request.out, request.err};
  for (int stream = 0; stream < 3; ++stream)
    if (::dup2(streams[stream] < 0 ? null : streams[stream], stream) < 0) return "set up a standard stream";
  for (const int kept : request.kept)
    if (::fcntl(kept, F_SETFD, 0) != 0) return "keep a descriptor";
  ::execvpe(argv[0], argv, environment);
  return "run the program";
}

}  // namespace

bool Namespaces::enter() const {
  if (user.open() && ::setns(user.get(), CLONE_NEWUSER) != 0) return false;
  return !network.open() || ::setns(network.get(), CLONE_NEWNET) == 0;
}

pid_t spawn(const SpawnRequest& request) {
  std::vector<char*> argv, environment;
  for (const std::string& word : request.words) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : request.environment) environment.push_back(const_cast<char*>(entry.c_str()));
  for (char** entry = environ; *entry; ++entry) environment.push_back(*entry);
  argv.push_back(nullptr);
  environment.push_back(nullptr);

  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) throw failure("pipe");
  Descriptor reading(report[0]), writing(report[1]);
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  struct Failure {
    const char* step;
    int error;
  } failed{};
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw failure("fork");
  if (child == 0) {
    failed.step = become(request, parent, null.get(), argv.data(), environment.data());
    failed.error = errno;
    [[maybe_unused]] const ssize_t told = ::write(writing.get(), &failed, sizeof failed);
    ::_exit(127);
  }
  writing.close();
  if (::read(reading.get(), &failed, sizeof failed) == static_cast<ssize_t>(sizeof failed)) {
    ::waitpid(child, nullptr, 0);
    errno = failed.error;
    throw failure(request.words.front() + ": cannot " + failed.step);  // the child's pointer is ours: a fork's memory
  }
  return child;
}

Descriptor memory_file(const std::string& content) {
  Descriptor file(::memfd_create("motley-test", MFD_CLOEXEC));
  if (!file.open()) throw failure("memfd_create");
  if (::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()))
    throw failure("write to a memory file");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

int run_to_end(SpawnRequest request, const std::string& input, std::string& output) {
  const Descriptor in = memory_file(input), out = memory_file("");
  request.in = in.get();
  request.out = request.err = out.get();
  const pid_t child = spawn(request);
  int status = 0;
  if (!wait_until(kRunLimit, [&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  const off_t size = ::lseek(out.get(), 0, SEEK_END);
  output.resize(static_cast<size_t>(size));
  if (::pread(out.get(), output.data(), output.size(), 0) != size) throw failure("read the output");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace motley::fleet
