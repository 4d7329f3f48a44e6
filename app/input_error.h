// The user's input was wrong: where, what was found, what is allowed, and the nearest name that exists. Exit code 2.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace motley::app {

/// Where a value stands: FILE:LINE:COLUMN, or a command-line argument as it was given (line 0).
struct Position {
  std::string source;
  int line = 0, column = 0;
  std::string text() const;
};

/// One message: `WHERE: error: found; allowed; did you mean 'x'?`. Empty parts are left out.
class InputError : public std::runtime_error {
 public:
  InputError(const Position& where, const std::string& found, const std::string& allowed = "",
             const std::string& nearest = "");
};

/// The name that `word` most likely stands for, by edit distance (a swap of neighbours counts once); empty if none is
/// near.
std::string nearest_name(std::string_view word, std::span<const std::string> names);
std::string join(std::span<const std::string> words, std::string_view separator);

}  // namespace motley::app
