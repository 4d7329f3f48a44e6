// One call: a command given to the shell, its output and status collected, its time held to the limit.
#pragma once

#include <cstdint>
#include <string_view>

#include "envs/sandbox/helper/shell.h"
#include "envs/sandbox/helper/wire.h"

namespace motley::envs {

struct CallOrder {
  std::string_view command;  // without NUL
  uint32_t limit_milliseconds = 0;
  uint64_t output_bytes = 0;
};

/// What all calls of a session share.
struct Session {
  Shell shell;
  wire::Setup limits;
  int control = -1;       // motley's end; when it closes everything ends
  int children = -1;      // readable when a child ended
  uint64_t deadline = 0;  // of the episode, microseconds
};

/// Runs it. When its time is over, what it started is killed and the shell with it, which would go on with the rest of
/// the command; a shell that ended is replaced at the next call.
wire::Report run_call(Session& session, const CallOrder& order);

/// Runs it in a bash of its own, beside the session's, which starts in the work folder. Its status is the kernel's: the
/// session's shell tells its own, and what it starts could tell in its place. What it left running is killed.
wire::Report run_once(Session& session, const CallOrder& order);

/// Ends this process, and so the sandbox. The reason goes where motley reads it.
[[noreturn]] void end_sandbox(const char* reason);

/// Empties the descriptor that is readable when a child ended.
void acknowledge_children(int children);

}  // namespace motley::envs
