// Copies that one thread has asked for and that have not arrived (PTX ISA, "Data Movement and Conversion Instructions:
// Asynchronous copy", the non-bulk form). Until then their destination holds bytes of 0xff, which is the latest that
// the data may become visible: at a wait for their group.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace motley::kernels::emulator {

class AsyncCopies {
 public:
  static constexpr size_t kMostBytes = 16;

  /// The first `valid` bytes are those of `from`, the others zero; `from` is not read when none is valid.
  void start(void* to, const void* from, size_t bytes, size_t valid);
  /// The copies since the last commit are a group.
  void commit() { ++groups_; }
  /// All groups but the latest `pending` arrive. False when something was stored where one was to arrive.
  bool wait(int pending);
  size_t under_way() const { return copies_.size(); }
  void clear();

 private:
  struct Copy {
    void* to;
    std::array<unsigned char, kMostBytes> data;
    size_t bytes;
    int group;
  };
  std::vector<Copy> copies_;
  int groups_ = 0;
};

}  // namespace motley::kernels::emulator
