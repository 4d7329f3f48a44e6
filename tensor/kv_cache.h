// The paged KV cache of an engine: one pool of pages, K and V of every layer in the profile's format. A sequence has a
// list of pages in order of position; sequences that begin alike may share pages, which are counted. Memory grows as
// pages are asked for, up to the pool's limit; pages that nobody holds are used again. On the CPU it never moves; on
// another device growing copies what is there into twice the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "tensor/reserved_memory.h"
#include "tensor/transformer.h"

namespace motley {

class KvCache {
 public:
  /// Room for `max_sequences` sequences of config.max_positions positions (as far as addresses reach). `config` is
  /// resolved.
  KvCache(const TransformerConfig& config, const kernels::NumericProfile& profile, int64_t page_size,
          int64_t max_sequences, const Device& device = {});

  /// A page held once. Throws std::runtime_error when the pool is exhausted.
  int32_t take();
  void hold(int32_t page) { ++holders_[static_cast<size_t>(page)]; }
  /// Gives back one hold; returns how many are left.
  int32_t release(int32_t page);
  /// Takes pages until `positions` positions fit.
  void extend(std::vector<int32_t>& pages, int64_t positions);
  void release(std::vector<int32_t>& pages);
  /// Copies K and V of the first `positions` positions of a page, in all layers.
  void copy(int32_t from, int32_t to, int64_t positions);

  int32_t holders(int32_t page) const { return holders_[static_cast<size_t>(page)]; }
  bool exhausted() const { return free_.empty() && allocated_ == limit_; }
  int64_t pages_in_use() const { return allocated_ - static_cast<int64_t>(free_.size()); }
  int64_t pages_allocated() const { return allocated_; }
  int64_t page_size() const { return page_size_; }
  /// K and V of all layers.
  int64_t bytes_per_page() const { return pools_ * page_bytes_; }
  kernels::Format format() const { return format_; }
  double scale() const { return scale_; }
  /// Memory of the device, valid until the next page is taken.
  void* keys(int64_t layer) { return pool(2 * layer); }
  void* values(int64_t layer) { return pool(2 * layer + 1); }

 private:
  std::byte* pool(int64_t index) { return start() + static_cast<size_t>(index) * pool_bytes_; }
  std::byte* start() { return reserved_ ? reserved_->data() : static_cast<std::byte*>(memory_.get()); }
  void grow();
  void make_room(int64_t pages);

  kernels::Format format_;
  double scale_;
  int64_t page_size_, page_bytes_, pools_, limit_;  // pools: K of layer 0, V of layer 0, K of layer 1, ...
  Device device_;
  size_t pool_bytes_;                       // from one pool's first page to the next's
  std::optional<ReservedMemory> reserved_;  // on the CPU
  std::shared_ptr<void> memory_;            // elsewhere
  int64_t allocated_ = 0;
  std::vector<int32_t> free_;     // taken from the back
  std::vector<int32_t> holders_;  // by page
};

}  // namespace motley
