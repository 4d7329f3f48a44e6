#include "envs/sandbox/helper_program.h"

// MOTLEY_SANDBOX_HELPER: where the build put the program.
asm(".pushsection .rodata\n"
    "motley_helper_begin: .incbin \"" MOTLEY_SANDBOX_HELPER
    "\"\n"
    "motley_helper_end: .byte 0\n"
    ".popsection\n");
extern "C" {
extern const char motley_helper_begin[];
extern const char motley_helper_end[];
}

namespace motley::envs {

std::string_view helper_program() {
  return {motley_helper_begin, static_cast<size_t>(motley_helper_end - motley_helper_begin)};
}

}  // namespace motley::envs
