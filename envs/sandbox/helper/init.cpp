#include "envs/sandbox/helper/init.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "envs/sandbox/helper/call.h"
#include "envs/sandbox/helper/files.h"
#include "envs/sandbox/helper/processes.h"
#include "envs/sandbox/helper/system.h"
#include "envs/sandbox/helper/wire.h"

namespace motley::envs {
namespace {

constexpr int idle_look = 200;  // milliseconds between two looks at what calls left running

std::string receive(int control) {
  uint32_t size = 0;
  std::string message;
  if (!read_all(control, reinterpret_cast<char*>(&size), sizeof size) || size > wire::largest_message) end_sandbox("");
  message.resize(size);
  if (!read_all(control, message.data(), size)) end_sandbox("");
  return message;
}

void answer(int control, const wire::Writer& message) {
  const auto size = static_cast<uint32_t>(message.bytes().size());
  std::string framed(reinterpret_cast<const char*>(&size), sizeof size);
  framed += message.bytes();
  if (!write_all(control, framed)) end_sandbox("");
}

wire::Setup read_setup(const std::string& message) {
  wire::Reader in(message);
  if (static_cast<wire::Kind>(in.u8()) != wire::Kind::setup) end_sandbox("the first message is no setup\n");
  wire::Setup setup;
  setup.watched_memory = in.u64();
  setup.files = in.u64();
  setup.file_bytes = in.u64();
  setup.processes = in.u32();
  setup.open_files = in.u32();
  setup.cpu_seconds = in.u32();
  setup.episode_milliseconds = in.u32();
  return setup;
}

void call(Session& session, wire::Reader& in, wire::Report (*how)(Session&, const CallOrder&)) {
  CallOrder order;
  order.limit_milliseconds = in.u32();
  order.output_bytes = in.u64();
  order.command = in.text();
  const wire::Report report = how(session, order);
  wire::Writer out;
  out.u32(report.status).u8(report.timed_out ? 1 : 0).u8(report.new_shell ? 1 : 0);
  out.u8(static_cast<uint8_t>(report.killed)).u64(report.microseconds).u64(report.cut);
  out.text(report.head).text(report.tail);
  answer(session.control, out);
}

void put(Session& session, wire::Reader& in) {
  const auto kind = static_cast<wire::EntryKind>(in.u8());
  const std::string_view path = in.text();
  answer(session.control, wire::Writer().text(put_file(path, kind, in.text())));
}

void take(Session& session, wire::Reader& in) {
  TakeLimits limits;
  limits.bytes = in.u64();
  limits.entries = in.u64();
  const std::string folder(in.text());
  session.shell.remember_folder();
  kill_everything();  // so that the tree stands still while it is read
  session.shell.forget();
  const std::string wrong =
      take_tree(folder, limits, [&](const std::string& path, wire::EntryKind kind, const std::string& content) {
        answer(session.control, wire::Writer().u8(static_cast<uint8_t>(kind)).text(path).text(content));
      });
  answer(session.control, wire::Writer().u8(wire::end_of_tree).text(wrong));
}

void serve_request(Session& session, const std::string& message) {
  wire::Reader in(message);
  switch (static_cast<wire::Kind>(in.u8())) {
    case wire::Kind::call:
      return call(session, in, run_call);
    case wire::Kind::run:
      return call(session, in, run_once);
    case wire::Kind::put:
      return put(session, in);
    case wire::Kind::take:
      return take(session, in);
    default:
      end_sandbox("an unknown request\n");
  }
}

/// Waits for the next request and holds what calls left in the background to the limits.
void wait_for_request(Session& session) {
  bool watched = true;
  const uint64_t most_files = std::max(session.limits.files, sandbox_files());
  for (;;) {
    const uint64_t now = now_microseconds();
    if (now >= session.deadline) end_sandbox(wire::episode_over);
    if (watched) {
      watched = sandbox_processes().size() > (session.shell.alive() ? 1U : 0U);
      const bool beyond = beyond_limits(session.limits.watched_memory, most_files) != wire::Killed::no;
      if (watched && beyond) {
        session.shell.remember_folder();
        kill_everything();
        session.shell.was_killed();
      }
    }
    int milliseconds = static_cast<int>((session.deadline - now) / 1000 + 1);
    if (watched) milliseconds = std::min(milliseconds, idle_look);
    pollfd fds[2] = {{session.control, POLLIN, 0}, {session.children, POLLIN, 0}};
    poll(fds, 2, milliseconds);
    if (fds[1].revents != 0) acknowledge_children(session.children);
    session.shell.reap();
    if (fds[0].revents != 0) return;
  }
}

}  // namespace

void serve_sandbox(int control) {
  close_range(static_cast<unsigned>(control) + 1, ~0U, 0);  // the descriptor that this program was started from
  prctl(PR_SET_DUMPABLE, 0);                                // /proc/1/mem and /proc/1/fd are closed to what runs here
  signal(SIGPIPE, SIG_IGN);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  try {
    const wire::Setup setup = read_setup(receive(control));
    Session session{Shell(setup), setup, control, signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK),
                    now_microseconds() + uint64_t{1000} * setup.episode_milliseconds};
    if (!session.shell.start()) end_sandbox("no shell could be started\n");
    answer(control, wire::Writer().text("ready"));
    for (;;) {
      wait_for_request(session);
      serve_request(session, receive(control));
    }
  } catch (const std::exception& error) {
    end_sandbox((std::string(error.what()) + "\n").c_str());
  }
}

}  // namespace motley::envs
