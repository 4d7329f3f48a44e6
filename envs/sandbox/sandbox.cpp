#include "envs/sandbox/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "envs/sandbox/bubblewrap.h"
#include "envs/sandbox/helper/system.h"
#include "envs/sandbox/helper/wire.h"
#include "envs/sandbox/seccomp_filter.h"

namespace motley::envs {
namespace {

constexpr double patience = 10.0;  // seconds that a sandbox has to answer beyond the limit of what it does
constexpr uint32_t nobody = 65534;
constexpr size_t longest_command = 1U << 20;

double now() { return static_cast<double>(now_microseconds()) * 1e-6; }

/// True where this user namespace knows the number.
bool knows(const char* map, uint32_t number) {
  std::ifstream in(map);
  for (uint64_t inside = 0, outside = 0, count = 0; in >> inside >> outside >> count;)
    if (number >= inside && number < inside + count) return true;
  return false;
}

/// Root becomes nobody first: the kernel holds root to no limit on processes.
uint32_t sandbox_user() {
  if (geteuid() != 0) return 0;
  return knows("/proc/self/uid_map", nobody) && knows("/proc/self/gid_map", nobody) ? nobody : 0;
}

uint32_t milliseconds(double seconds) { return static_cast<uint32_t>(std::ceil(seconds * 1000.0)); }

/// Below the folder that it is relative to. bad_path, for what people write, is stricter.
bool stays_below(std::string_view path) {
  if (path.empty() || path.size() > 4096 || path.find('\0') != std::string_view::npos) return false;
  for (;;) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

wire::EntryKind kind_of(const TreeEntry& entry) {
  if (entry.kind == TreeEntry::Kind::folder) return wire::EntryKind::folder;
  if (entry.kind == TreeEntry::Kind::link) return wire::EntryKind::symlink;
  return entry.executable ? wire::EntryKind::executable : wire::EntryKind::file;
}

TreeEntry entry_of(wire::EntryKind kind, std::string_view content) {
  TreeEntry entry;
  if (kind == wire::EntryKind::folder) entry.kind = TreeEntry::Kind::folder;
  if (kind == wire::EntryKind::symlink) entry.kind = TreeEntry::Kind::link;
  entry.executable = kind == wire::EntryKind::executable;
  entry.content = content;
  return entry;
}

/// True at the end of the stream.
bool wait_for_end(int fd, double seconds) {
  char buffer[4096];
  for (const double until = now() + seconds;;) {
    pollfd wait{fd, POLLIN, 0};
    const double left = until - now();
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left * 1000.0) + 1) < 0) {
      if (left <= 0) return false;
      continue;
    }
    if (wait.revents != 0 && read(fd, buffer, sizeof buffer) == 0) return true;
  }
}

}  // namespace

SandboxHost::SandboxHost(bool use_cgroups)
    : program_(find_bubblewrap()), filter_(seccomp_filter()), user_(sandbox_user()) {
  if (program_.empty()) throw SandboxError("sandboxes need bubblewrap: apt-get install bubblewrap");
  if (!use_cgroups) return;
  cgroups_ = Cgroups::find();
  if (!cgroups_) return;
  for (const std::string& place : cgroups_->places()) remove_stale_cgroups(place);
}

Sandbox::Sandbox(SandboxHost& host, const SandboxLimits& limits) : host_(host), limits_(limits), id_(host.next_id_++) {
  check_limits(limits);
  spawn();
  wire::Writer setup;
  const bool watched = !host_.cgroups_;
  setup.u8(static_cast<uint8_t>(wire::Kind::setup)).u64(watched ? limits_.memory_bytes : 0).u64(limits_.files);
  setup.u64(limits_.disk_bytes).u32(limits_.processes).u32(limits_.open_files);
  setup.u32(static_cast<uint32_t>(std::ceil(limits_.cpu_seconds))).u32(milliseconds(limits_.episode_seconds));
  send(setup.bytes());
  const std::string answer = receive(patience);
  if (wire::Reader(answer).text() != "ready") throw SandboxError("the sandbox did not start");
}

void Sandbox::spawn() {
  int ends[2], life[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw SandboxError(std::string("a sandbox: no socket: ") + std::strerror(errno));
  control_ = Descriptor(ends[0]);
  const Descriptor its_control(ends[1]);
  if (pipe2(life, O_CLOEXEC) != 0) throw SandboxError(std::string("a sandbox: no pipe: ") + std::strerror(errno));
  life_ = Descriptor(life[0]);
  const Descriptor its_life(life[1]);
  const Descriptor filter = memory_file("filter", host_.filter_), passwd = memory_file("passwd", sandbox_passwd),
                   group = memory_file("group", sandbox_group);
  Keeper::Order order;
  order.id = id_;
  order.user = host_.user_;
  if (host_.cgroups_) order.cgroups = host_.cgroups_->order(id_, limits_);
  order.arguments = bubblewrap_arguments(host_.program_, limits_);
  order.descriptors = {its_life.get(), its_control.get(), host_.keeper_.program(),
                       filter.get(),   passwd.get(),      group.get()};
  host_.keeper_.spawn(order);
}

Sandbox::~Sandbox() { destroy(); }

bool Sandbox::destroy() {
  if (life_.get() < 0) return true;
  control_.reset();
  bool gone = wait_for_end(life_.get(), 2.0);
  if (!gone) {
    try {
      host_.keeper_.end(id_);
    } catch (const SandboxError&) {  // without a keeper there is nothing left to end
    }
    gone = wait_for_end(life_.get(), 5.0);
  }
  life_.reset();
  return gone;
}

void Sandbox::lost() {
  control_.reset();
  std::string why;
  for (const double until = now() + 1.0; life_.get() >= 0 && now() < until;) {
    pollfd wait{life_.get(), POLLIN, 0};
    char buffer[4096];
    if (poll(&wait, 1, 100) <= 0) continue;
    const ssize_t got = read(life_.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    why.append(buffer, static_cast<size_t>(got));
  }
  while (!why.empty() && why.back() == '\n') why.pop_back();
  over_ = why == wire::episode_over;
  if (over_) check_alive();
  throw SandboxError("the sandbox ended: " + (why.empty() ? "it was killed from outside, or its keeper was" : why));
}

void Sandbox::check_alive() const {
  if (over_) throw EpisodeOver(wire::episode_over);
  if (control_.get() < 0) throw SandboxError("the sandbox has ended");
}

void Sandbox::send(const std::string& message) {
  check_alive();
  const auto size = static_cast<uint32_t>(message.size());
  std::string framed(reinterpret_cast<const char*>(&size), sizeof size);
  framed += message;
  std::string_view rest = framed;
  while (!rest.empty()) {
    const ssize_t sent = ::send(control_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) lost();
    rest.remove_prefix(static_cast<size_t>(sent));
  }
}

void Sandbox::read_whole(char* data, size_t size, double until) {
  while (size > 0) {
    pollfd wait{control_.get(), POLLIN, 0};
    const double left = until - now();
    if (left <= 0) {
      control_.reset();
      throw SandboxError("the sandbox does not answer");
    }
    if (poll(&wait, 1, static_cast<int>(std::min(left, 1e6) * 1000.0) + 1) <= 0) continue;
    const ssize_t got = read(control_.get(), data, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) lost();
    data += got;
    size -= static_cast<size_t>(got);
  }
}

std::string Sandbox::receive(double seconds) {
  check_alive();
  const double until = now() + seconds;
  uint32_t size = 0;
  read_whole(reinterpret_cast<char*>(&size), sizeof size, until);
  if (size > wire::largest_message) {
    control_.reset();
    throw SandboxError("the sandbox sent a message of " + std::to_string(size) + " bytes");
  }
  std::string message(size, '\0');
  read_whole(message.data(), size, until);
  return message;
}

CallResult Sandbox::call(const std::string& command, std::optional<double> seconds) {
  return order(wire::Kind::call, command, seconds);
}

CallResult Sandbox::run(const std::string& command, std::optional<double> seconds) {
  return order(wire::Kind::run, command, seconds);
}

CallResult Sandbox::order(wire::Kind kind, const std::string& command, std::optional<double> seconds) {
  if (command.size() > longest_command || command.find('\0') != std::string::npos)
    throw SandboxError("a command must be at most 1 MiB long and without a NUL");
  const double limit = std::clamp(seconds.value_or(limits_.call_seconds), 0.001, limits_.call_seconds);
  wire::Writer order;
  order.u8(static_cast<uint8_t>(kind)).u32(milliseconds(limit)).u64(limits_.output_bytes).text(command);
  send(order.bytes());
  const std::string message = receive(limit + patience);
  wire::Reader in(message);
  CallResult result;
  result.status = static_cast<int>(in.u32());
  result.timed_out = in.u8() != 0;
  result.new_shell = in.u8() != 0;
  const auto killed = static_cast<wire::Killed>(in.u8());
  result.seconds = static_cast<double>(in.u64()) * 1e-6;
  result.cut_bytes = in.u64();
  result.output = in.text();
  if (result.cut_bytes > 0) result.output += "\n[" + std::to_string(result.cut_bytes) + " bytes cut]\n";
  result.output += in.text();
  result.too_many_files = killed == wire::Killed::files;
  const uint64_t kills = host_.cgroups_ ? host_.cgroups_->memory_kills(id_) : 0;
  result.out_of_memory = killed == wire::Killed::memory || kills > memory_kills_;
  memory_kills_ = kills;
  return result;
}

void Sandbox::put(const std::string& path, const TreeEntry& entry) {
  if (!stays_below(path)) throw SandboxError("'" + path + "' is no path inside a work tree");
  wire::Writer order;
  order.u8(static_cast<uint8_t>(wire::Kind::put))
      .u8(static_cast<uint8_t>(kind_of(entry)))
      .text(path)
      .text(entry.content);
  if (order.bytes().size() > wire::largest_message) throw SandboxError(path + ": the file is too large");
  send(order.bytes());
  const std::string message = receive(patience);
  const std::string_view wrong = wire::Reader(message).text();
  if (!wrong.empty()) throw SandboxError("'" + path + "' cannot be put into the sandbox: " + std::string(wrong));
}

void Sandbox::put(const FileTree& tree) {
  for (const auto& [path, entry] : tree) put(path, entry);
}

FileTree Sandbox::take(const std::string& folder, uint64_t most_bytes) {
  if (!folder.empty() && !stays_below(folder)) throw SandboxError("'" + folder + "' is no path inside a work tree");
  most_bytes = std::min<uint64_t>(most_bytes, wire::largest_message - (1U << 16));
  wire::Writer order;
  order.u8(static_cast<uint8_t>(wire::Kind::take)).u64(most_bytes).u64(limits_.files).text(folder);
  send(order.bytes());
  FileTree tree;
  std::string wrong;
  for (;;) {
    const std::string message = receive(patience);
    wire::Reader in(message);
    const uint8_t kind = in.u8();
    const std::string path(in.text());
    if (kind == wire::end_of_tree) {
      wrong = path;
      break;
    }
    if (kind > static_cast<uint8_t>(wire::EntryKind::folder) || !stays_below(path))
      throw SandboxError("the sandbox sent a tree that makes no sense");
    tree[path] = entry_of(static_cast<wire::EntryKind>(kind), in.text());
  }
  if (!wrong.empty()) throw TreeError("the work tree cannot be taken: " + wrong);
  return tree;
}

}  // namespace motley::envs
