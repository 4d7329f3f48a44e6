// The decoders of bytes from outside: files, model output, other programs, the network. Each is fed any bytes at all by
// `make fuzz`, and the bytes of its corpus in the fast tests.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace motley::fuzz {

struct Target {
  /// True: the bytes were taken. False: refused by the one error that the decoder's header names. Any other exception
  /// is a defect, and so is a value that its own encoder does not give back.
  bool (*decode)(std::string_view bytes) = nullptr;
  /// Bytes of our own encoders that must be taken, by name: where a corpus begins.
  std::map<std::string, std::string> (*seeds)() = nullptr;
};

/// By name, which is also the corpus's folder under tests/fuzz/corpus.
const std::map<std::string, Target>& targets();

}  // namespace motley::fuzz
