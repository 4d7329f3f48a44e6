// Copies between a device and memory of the host that is not pinned, by way of pinned memory of this thread: the host
// does not wait for an upload, and copies one piece of a large one while the device takes the piece before.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/device_stream.h"

namespace motley::kernels {

/// Pinned memory in pieces that are used in turn. A piece is used again when the copies that it had part in are done.
/// All of them must go to one stream: whoever owns the ring uses it under one StreamScope.
class PinnedRing {
 public:
  /// `pieces` of at least 1, each of `piece_bytes` of at least 1.
  PinnedRing(const Device& device, size_t piece_bytes, int pieces);
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;
  /// `from` may change as soon as this returns; the bytes are at `to` for what the stream is given next.
  void upload(void* to, const void* from, size_t bytes);
  /// Returns when the bytes are there.
  void download(void* to, const void* from, size_t bytes);

 private:
  struct Piece {
    explicit Piece(const Device& device, size_t bytes) : pinned(device, bytes), done(device) {}
    std::byte* data() const { return static_cast<std::byte*>(pinned.data()); }
    PinnedBytes pinned;
    Event done;
  };
  Piece& next_piece();

  Device device_;
  size_t piece_bytes_, used_ = 0;  // of the current piece
  size_t current_ = 0;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

/// Through a ring of this thread and of the stream that it uses.
void upload(const Device& device, void* to, const void* from, size_t bytes);
void download(const Device& device, void* to, const void* from, size_t bytes);

/// Small arrays of a device that the host reads together, waiting once.
class Downloads {
 public:
  explicit Downloads(const Device& device) : device_(device) {}
  /// The array's number. It is read when `finish` is called, in the order of this thread's stream.
  size_t add(const void* from, size_t bytes);
  /// Forgets the arrays of before.
  void clear() { arrays_.clear(); }
  /// Waits for this thread's stream. Throws what a kernel met.
  void finish();
  /// After `finish`, until the next: aligned for every type.
  template <class T>
  const T* at(size_t number) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(pinned_->data()) + arrays_[number].offset);
  }

 private:
  struct Array {
    const void* from;
    size_t bytes, offset;
  };
  Device device_;
  std::vector<Array> arrays_;
  std::unique_ptr<PinnedBytes> pinned_;  // grows
};

}  // namespace motley::kernels
