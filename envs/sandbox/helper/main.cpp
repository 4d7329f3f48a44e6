// The helper program of sandboxes, linked statically and carried inside motley: `keeper` beside motley, `init` as the
// first process of a sandbox. Its descriptor 3 is a socket to motley.
#include <string_view>

#include "envs/sandbox/helper/init.h"
#include "envs/sandbox/helper/keeper.h"

int main(int count, char** arguments) {
  constexpr int socket = 3;
  const std::string_view mode = count == 2 ? arguments[1] : "";
  if (mode == "keeper") return motley::envs::keep_sandboxes(socket);
  if (mode == "init") motley::envs::serve_sandbox(socket);
  return 2;
}
