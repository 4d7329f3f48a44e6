#include "app/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "app/input_error.h"

namespace motley::app {

void check_output_file(const std::string& option, const std::string& file) {
  namespace fs = std::filesystem;
  const Position where{option + " " + file};
  const fs::path path(file), folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw InputError(where, "there is no folder '" + folder.string() + "'");
  if (::access(folder.c_str(), W_OK) != 0) {
    throw InputError(where, "the folder cannot be written to: " + std::generic_category().message(errno));
  }
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    throw InputError(where, "is there already, and no regular file");
  }
}

}  // namespace motley::app
