// One stay of this process in a run elsewhere, from its welcome to its end: what the roles have in common.
#pragma once

#include <optional>
#include <string>

namespace motley::actors {

class Stay {
 public:
  virtual ~Stay() = default;
  /// The first thing that ended it; empty while it goes on. Throws what no other try would help against.
  virtual std::optional<std::string> broken() const = 0;
  /// It has reported everything.
  virtual bool left() const = 0;
  /// The run wants it to go.
  virtual bool retired() const = 0;
  /// It has been of use.
  virtual bool served() const = 0;
  /// It shall finish what is under way, and report it.
  virtual void leave() = 0;
};

}  // namespace motley::actors
