// Who may join a run, as what: protocol, version, role and what belongs to the role.
#pragma once

#include <optional>
#include <string>

#include "actors/fleet.h"
#include "actors/messages.h"

namespace motley::actors {

/// A sampler's, by its name or by the hardware; empty: there is none that it fits.
std::optional<size_t> group_of(const Fleet& fleet, const Hello& hello);

/// Why it may not join, whatever it tries again; empty: it may.
std::string admission_refusal(const Fleet& fleet, const Hello& hello);

/// What a peer calls itself goes into the log: printable, and short.
std::string printable(std::string text);

}  // namespace motley::actors
