// The statically linked helper program (envs/sandbox/helper), carried in this binary.
#pragma once

#include <string_view>

namespace motley::envs {

std::string_view helper_program();

}  // namespace motley::envs
