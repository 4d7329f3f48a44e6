// What /proc says of other processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace motley::fleet {

/// Open descriptors; 0 for a process that is gone.
int64_t open_descriptors(pid_t process);
/// Memory that it has in RAM, in bytes; 0 for a process that is gone.
int64_t resident_bytes(pid_t process);
/// Processes that live in one of the namespaces of Network::identity(), other than zombies.
int inhabitants(const std::string& identity);

}  // namespace motley::fleet
