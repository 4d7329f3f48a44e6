// What the loss of a replica costs its sessions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::actors {

inline constexpr uint32_t kMaxLosses = 2;  // a session that lost this many replicas fails
inline constexpr size_t kChunk = 16;       // tokens of a session that a death may lose

}  // namespace motley::actors
