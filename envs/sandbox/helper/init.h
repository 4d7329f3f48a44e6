#pragma once

namespace motley::envs {

/// The first process of a sandbox: serves motley's requests on the descriptor `control` until it closes or the time of
/// the episode is over. Nothing outlives it: the kernel ends a process namespace with its first process.
[[noreturn]] void serve_sandbox(int control);

}  // namespace motley::envs
