// Address space that becomes memory piece by piece: what is in use never moves, and growing costs only what is new.
#pragma once

#include <cstddef>

namespace motley {

class ReservedMemory {
 public:
  /// Throws std::runtime_error where the system has no such range of addresses left.
  explicit ReservedMemory(size_t bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::byte* data() const { return data_; }
  /// Makes [begin, end) usable, zero at first; parts that are already usable stay as they are. Throws
  /// std::runtime_error when the system refuses.
  void commit(size_t begin, size_t end);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

/// The unit in which the system makes memory usable.
size_t system_page_size();

}  // namespace motley
