// Files that a command is to write, checked before it computes anything.
#pragma once

#include <string>

namespace motley::app {

/// `file` as given to `option`. InputError: its folder is not there or cannot be written to, or it is there already and
/// no regular file, which putting a new one in its place would remove.
void check_output_file(const std::string& option, const std::string& file);

}  // namespace motley::app
