// `motley list corrections`: every piece with its formula, defaults, and what it costs.
#pragma once

namespace motley::app {

/// Prints; gives the exit code.
int list_corrections(bool json);

}  // namespace motley::app
