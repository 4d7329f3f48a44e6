// motley keygen: a new key file for a fleet.
#include <fmt/format.h>

#include <cstdio>

#include "actors/security/keys.h"
#include "app/commands.h"

namespace motley::app {

int keygen_command(const std::string& file) {
  const actors::Keys keys = actors::make_keys();
  actors::write_keys(file, keys);
  const std::string text = fmt::format(
      "{}: a new key, valid for {} days; its public part is {}\n"
      "Give every machine of the fleet this file, on a way that nobody else can read.\n",
      file, actors::kKeyDays, keys.curve_public);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace motley::app
