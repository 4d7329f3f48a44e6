// The second operand of a product as it is stored, in panels that the inner kernels read front to back; made once, used
// for many products. There is no float copy: kernels decode in registers, or a panel at a time
// (kernels/cpu/packed_panel.h).
#pragma once

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "kernels/buffer_pool.h"
#include "kernels/profile.h"

namespace motley::kernels {

struct ConstMatrix;
struct QuantizedMatrix;

/// Storage that starts on a cache line, from the pool of buffers. Elements that are given no value have none.
template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  explicit LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(buffer_pool().take(count * sizeof(T))); }
  void deallocate(T* p, size_t count) { buffer_pool().give_back(p, count * sizeof(T)); }
  template <class U>
  void construct(U* p) noexcept {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
  }
  bool operator==(const LineAllocator&) const { return true; }
};
template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

/// Rows [16 p, 16 p + 16) make panel p, zeros beyond the last row and column. Every panel starts on a cache line. How
/// its codes lie depends on what decodes them with the fewest instructions:
/// fp32, bf16, fp16: [K][16].
/// e4m3, e5m2: 16-bit words [ceil(K / 4)][2][16], word [s][i][r] with k = 4 s + i in its low byte and k + 2 in its
/// high. e2m1: 32-bit words [ceil(K / 8)][16], eight consecutive k of one row in a word, the first in the lowest bits.
struct PackedMatrix {
  int64_t rows = 0, cols = 0;  // N, K
  Format format = Format::fp32;
  Scaling scaling = Scaling::none;  // of the block scales that are part of a value: none, mx32 or nv16
  bool rare = false;  // holds e4m3 codes that the quick decoding lacks: NaN, or with mx32 scales above 2^119
  LineVector<uint8_t> codes, block_codes;  // block codes of a panel: mx32 [ceil(K / 32)][16], nv16 [ceil(K / 16)][16]

  /// Of memory that the matrix holds.
  int64_t bytes() const { return static_cast<int64_t>(codes.size() + block_codes.size()); }
};

/// Elements keep their type: fp32, bf16 or fp16. Throws std::logic_error for fp64.
PackedMatrix pack(const ConstMatrix& b);
/// The values of decode_codes: fp32 scales stay outside. Throws std::invalid_argument when the sizes disagree.
PackedMatrix pack(const QuantizedMatrix& b);
/// What was packed, without its fp32 scales: every code of it. Throws std::invalid_argument for a matrix that was not
/// packed from that quantization.
QuantizedMatrix unpack(const PackedMatrix& packed, const Quantization& how);

}  // namespace motley::kernels
