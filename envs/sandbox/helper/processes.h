// The processes of a sandbox, seen from its first process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>

#include "envs/sandbox/helper/wire.h"

namespace motley::envs {

/// All but the first process. Those that ended and were not waited for are among them.
std::set<pid_t> sandbox_processes();

/// Kills every process but the first and waits until all are gone. The kernel signals them in one go, so that a fork
/// bomb cannot outrun it.
void kill_everything();

/// Kills the processes that are not in `kept`, a few times over since they may fork meanwhile.
void kill_others(const std::set<pid_t>& kept);

/// Bytes of memory that the processes and the file systems of the sandbox hold. Memory that processes share counts
/// once; a file of the sandbox that is also mapped counts twice. Above `enough` it is counted exactly, below it may be
/// overstated (the exact count walks page tables).
uint64_t sandbox_memory(uint64_t enough);

/// Files and folders in the file systems of the sandbox.
uint64_t sandbox_files();

/// Whether the sandbox holds too much. `memory` 0: no limit.
wire::Killed beyond_limits(uint64_t memory, uint64_t files);

}  // namespace motley::envs
