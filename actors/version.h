// The version of this motley.
#pragma once

#include <string>

namespace motley::actors {

std::string version();

}  // namespace motley::actors
