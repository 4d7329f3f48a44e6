// libFuzzer's way into one target, which the environment variable MOTLEY_FUZZ names.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace {
const motley::fuzz::Target* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("MOTLEY_FUZZ");
  const auto found = motley::fuzz::targets().find(name != nullptr ? name : "");
  if (found != motley::fuzz::targets().end()) {
    chosen = &found->second;
    return 0;
  }
  std::fputs("MOTLEY_FUZZ names a target, one of:\n", stderr);
  for (const auto& [target, unused] : motley::fuzz::targets()) std::fprintf(stderr, "%s\n", target.c_str());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->decode({reinterpret_cast<const char*>(data), size});
  return 0;
}
