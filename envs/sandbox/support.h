// Whether this machine can make sandboxes, and what would mend it.
#pragma once

#include <string>

#include "envs/sandbox/sandbox.h"

namespace motley::envs {

struct SandboxSupport {
  bool works = false;
  std::string state;  // what holds memory to its limit, or what fails
  std::string mend;   // the command that would help; empty: it works
};

/// Starts a sandbox and runs a command in it.
SandboxSupport examine_sandboxes();

/// For what is about to run untrusted programs: throws SandboxError with state and mend where there are no sandboxes.
/// Nothing ever runs without one instead.
void require_sandboxes();

}  // namespace motley::envs
