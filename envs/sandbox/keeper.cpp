#include "envs/sandbox/keeper.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "envs/sandbox/helper/system.h"
#include "envs/sandbox/helper/wire.h"
#include "envs/sandbox/helper_program.h"

namespace motley::envs {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw SandboxError("sandboxes: " + what + ": " + std::strerror(error));
}

void texts(wire::Writer& out, const std::vector<std::string>& list) {
  out.u32(static_cast<uint32_t>(list.size()));
  for (const std::string& text : list) out.text(text);
}

}  // namespace

void Descriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Descriptor memory_file(const char* name, std::string_view bytes) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  if (file.get() < 0) fail(std::string("no memory file for ") + name, errno);
  if (!write_all(file.get(), bytes)) fail(std::string("cannot write the memory file of ") + name, errno);
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

Keeper::Keeper() : program_(memory_file("motley-sandbox", helper_program())) {}

Keeper::~Keeper() {
  socket_.reset();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void Keeper::start() {
  socket_.reset();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  pid_ = 0;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("no socket for the keeper", errno);
  socket_ = Descriptor(ends[0]);
  // Copies far above 3, which the new process has for its socket.
  const Descriptor low(ends[1]), theirs(fcntl(ends[1], F_DUPFD_CLOEXEC, 64)),
      program(fcntl(program_.get(), F_DUPFD_CLOEXEC, 64));
  if (theirs.get() < 0 || program.get() < 0) fail("no descriptor for the keeper", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  const std::string path = "/proc/self/fd/" + std::to_string(program.get());
  char name[] = "motley-sandbox", mode[] = "keeper";
  char* arguments[] = {name, mode, nullptr};
  char* environment[] = {nullptr};
  const int error = posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = 0;
    fail("the keeper does not start", error);
  }
}

bool Keeper::try_send(const std::string& message, const std::vector<int>& descriptors) const {
  if (socket_.get() < 0) return false;
  iovec data{const_cast<char*>(message.data()), message.size()};
  std::vector<char> room(descriptors.empty() ? 0 : CMSG_SPACE(sizeof(int) * descriptors.size()));
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(part), descriptors.data(), sizeof(int) * descriptors.size());
  }
  ssize_t sent = 0;
  while ((sent = sendmsg(socket_.get(), &header, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return sent == static_cast<ssize_t>(message.size());
}

void Keeper::send(const std::string& message, const std::vector<int>& descriptors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (try_send(message, descriptors)) return;
  start();
  if (!try_send(message, descriptors)) fail("the keeper does not listen", errno);
}

void Keeper::spawn(const Order& order) {
  wire::Writer out;
  out.u64(order.id).u32(order.user);
  texts(out, order.cgroups.folders);
  texts(out, order.cgroups.settings);
  texts(out, order.arguments);
  send(out.bytes(), order.descriptors);
}

void Keeper::end(uint64_t id) {
  wire::Writer out;
  out.u64(id).u32(0).u32(0).u32(0).u32(0);
  send(out.bytes(), {});
}

}  // namespace motley::envs
