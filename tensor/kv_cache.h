// The paged KV cache of an engine: one pool of pages, K and V of every layer in the profile's format. A sequence owns
// a list of pages in order of position. Memory grows as pages are asked for, up to the pool's limit; pages that are
// given back are used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "tensor/transformer.h"

namespace motley {

class KvCache {
 public:
  /// Room for `max_sequences` sequences of config.max_positions positions. `config` is resolved.
  KvCache(const TransformerConfig& config, const kernels::NumericProfile& profile, int64_t page_size,
          int64_t max_sequences);

  /// Adds pages to `pages` until `positions` positions fit. Moves the pool when it grows: pointers from keys() and
  /// values() are valid until then. Throws std::runtime_error when the pool is exhausted.
  void extend(std::vector<int32_t>& pages, int64_t positions);
  void release(std::vector<int32_t>& pages);

  int64_t pages_in_use() const { return allocated_ - static_cast<int64_t>(free_.size()); }
  int64_t pages_allocated() const { return allocated_; }
  int64_t page_size() const { return page_size_; }
  kernels::Format format() const { return format_; }
  double scale() const { return scale_; }
  void* keys(int64_t layer) { return pools_[static_cast<size_t>(2 * layer)].data(); }
  void* values(int64_t layer) { return pools_[static_cast<size_t>(2 * layer + 1)].data(); }

 private:
  void grow();

  kernels::Format format_;
  double scale_;
  int64_t page_size_, page_bytes_, limit_;
  int64_t allocated_ = 0;
  std::vector<int32_t> free_;                  // taken from the back
  std::vector<std::vector<std::byte>> pools_;  // K of layer 0, V of layer 0, K of layer 1, ...
};

}  // namespace motley
