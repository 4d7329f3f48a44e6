// Bytes between two guard zones: AddressSanitizer sees any touch of a zone, intact() sees a store without it. Retired
// bytes are all zone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace motley::kernels::emulator {

class GuardedBytes {
 public:
  /// `number` is the owner's, for whoever must tell it from others at the same place.
  explicit GuardedBytes(size_t bytes, uint64_t number = 0);
  ~GuardedBytes();
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  void* data() const { return memory_.get() + kZone; }
  size_t size() const { return bytes_; }
  uint64_t number() const { return number_; }
  /// False when a zone has been written to since the last call.
  bool intact();
  /// Nobody may touch the bytes any more.
  void retire();
  bool retired() const { return retired_; }

 private:
  static constexpr size_t kZone = 256;  // a multiple of every element's size and of a cache line
  void fill_zones();
  void hide(bool hidden) const;

  size_t bytes_;
  uint64_t number_;
  bool retired_ = false;
  std::unique_ptr<unsigned char[]> memory_;
};

}  // namespace motley::kernels::emulator
