#include <cstdio>

#include "app/commands.h"

int main(int argc, char** argv) {
#if defined(__x86_64__)
  // Everything is compiled for x86-64-v3; without it the first vector instruction would be a bare SIGILL.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("motley: error: this processor has no AVX2 and FMA, which the kernels are compiled for\n", stderr);
    return 1;
  }
#endif
  return motley::app::run_command_line(argc, argv);
}
