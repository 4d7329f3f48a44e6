#pragma once

namespace motley::envs {

/// The keeper: one small process beside motley that starts bubblewrap for each sandbox and clears away its cgroups. It
/// is a process of its own because (1) "die with the parent" means the parent's thread, and motley's come and go; (2)
/// fork in a process with gigabytes of weights is slow; (3) it outlives a `kill -9` of motley by the moment that
/// clearing away takes. Ends when `socket` closes and all sandboxes are gone.
int keep_sandboxes(int socket);

}  // namespace motley::envs
