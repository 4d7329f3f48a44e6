#include <fcntl.h>

#include <cstdio>

#include "app/commands.h"

/// The number of a closed standard stream would go to the next file that is opened, and messages into that file.
static void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", O_RDWR);  // takes the lowest free number
  }
}

int main(int argc, char** argv) {
#if defined(__x86_64__)
  // Everything is compiled for x86-64-v3; without it the first vector instruction would be a bare SIGILL.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("motley: error: this processor has no AVX2 and FMA, which the kernels are compiled for\n", stderr);
    return 1;
  }
#endif
  open_standard_streams();
  return motley::app::run_command_line(argc, argv);
}
