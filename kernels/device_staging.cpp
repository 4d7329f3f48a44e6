#include "kernels/device_staging.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/graph_memory.h"

namespace motley::kernels {
namespace {

// One piece holds the lists of a step; several let the host fill one while others are on their way.
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr int kPieces = 4;
// Of the emulated device, which has no time to hide, pieces are small so that tests go round.
constexpr size_t kEmulatedPieceBytes = size_t{1} << 14;
constexpr size_t kMostRings = 4;  // of a thread: more streams than that take turns
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct RingOfStream {
  Device device;
  void* stream;
  std::unique_ptr<PinnedRing> ring;
};

void* stream_in_use(const Device& device) {
  select_device(device);
  return device.kind == DeviceKind::cuda ? cuda::stream_in_use() : emulated::stream_in_use();
}

PinnedRing& ring_of(const Device& device) {
  if (GraphMemory::of_capture() != nullptr)
    throw std::logic_error("memory of the host that is not pinned is copied while a graph is captured");
  thread_local std::vector<RingOfStream> rings;  // the last used first
  void* const stream = stream_in_use(device);
  const auto found = std::find_if(rings.begin(), rings.end(), [&](const RingOfStream& ring) {
    return ring.device == device && ring.stream == stream;
  });
  if (found != rings.end()) {
    std::rotate(rings.begin(), found, found + 1);
    return *rings.front().ring;
  }
  if (rings.size() == kMostRings) rings.pop_back();
  const size_t bytes = device.kind == DeviceKind::cuda ? kPieceBytes : kEmulatedPieceBytes;
  rings.insert(rings.begin(), {device, stream, std::make_unique<PinnedRing>(device, bytes, kPieces)});
  return *rings.front().ring;
}

}  // namespace

PinnedRing::PinnedRing(const Device& device, size_t piece_bytes, int pieces)
    : device_(device), piece_bytes_(piece_bytes) {
  for (int i = 0; i < pieces; ++i) pieces_.push_back(std::make_unique<Piece>(device, piece_bytes));
}

PinnedRing::~PinnedRing() {
  for (const auto& piece : pieces_) {
    try {
      piece->done.finish();
    } catch (const std::exception&) {  // of a kernel, told to who waits for its stream; or the device is gone
    }
  }
}

PinnedRing::Piece& PinnedRing::next_piece() {
  current_ = (current_ + 1) % pieces_.size();
  used_ = 0;
  pieces_[current_]->done.finish();
  return *pieces_[current_];
}

void PinnedRing::upload(void* to, const void* from, size_t bytes) {
  for (size_t begin = 0; begin < bytes;) {
    Piece& piece = used_ + std::min(bytes - begin, piece_bytes_) > piece_bytes_ ? next_piece() : *pieces_[current_];
    const size_t count = std::min(bytes - begin, piece_bytes_);
    std::memcpy(piece.data() + used_, static_cast<const std::byte*>(from) + begin, count);
    copy_in_async(device_, static_cast<std::byte*>(to) + begin, piece.data() + used_, count);
    piece.done.record();
    used_ = std::min(piece_bytes_, aligned(used_ + count));
    begin += count;
  }
}

void PinnedRing::download(void* to, const void* from, size_t bytes) {
  struct Part {
    Piece* piece;
    size_t begin, count;
  };
  std::vector<Part> under_way;
  const auto take = [&](const Part& part) {
    part.piece->done.finish();
    std::memcpy(static_cast<std::byte*>(to) + part.begin, part.piece->data(), part.count);
  };
  for (size_t begin = 0; begin < bytes; begin += piece_bytes_) {
    if (under_way.size() == pieces_.size()) {
      take(under_way.front());
      under_way.erase(under_way.begin());
    }
    const Part part{&next_piece(), begin, std::min(bytes - begin, piece_bytes_)};
    copy_out_async(device_, part.piece->data(), static_cast<const std::byte*>(from) + begin, part.count);
    part.piece->done.record();
    used_ = piece_bytes_;
    under_way.push_back(part);
  }
  for (const Part& part : under_way) take(part);
}

void upload(const Device& device, void* to, const void* from, size_t bytes) {
  if (bytes > 0) ring_of(device).upload(to, from, bytes);
}
void download(const Device& device, void* to, const void* from, size_t bytes) {
  if (bytes > 0) ring_of(device).download(to, from, bytes);
}

size_t Downloads::add(const void* from, size_t bytes) {
  const size_t offset = arrays_.empty() ? 0 : aligned(arrays_.back().offset + arrays_.back().bytes);
  arrays_.push_back({from, bytes, offset});
  return arrays_.size() - 1;
}

void Downloads::finish() {
  if (arrays_.empty()) return;
  const size_t bytes = arrays_.back().offset + arrays_.back().bytes;
  if (!pinned_ || pinned_->size() < bytes) pinned_ = std::make_unique<PinnedBytes>(device_, 2 * bytes);
  for (const Array& array : arrays_) {
    if (array.bytes == 0) continue;
    copy_out_async(device_, static_cast<std::byte*>(pinned_->data()) + array.offset, array.from, array.bytes);
  }
  finish_stream(device_);
  if (device_.kind == DeviceKind::emulated) emulated::check_buffers();
}

}  // namespace motley::kernels
