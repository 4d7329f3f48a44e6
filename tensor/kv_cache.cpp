#include "tensor/kv_cache.h"

#include <algorithm>
#include <stdexcept>

namespace motley {

KvCache::KvCache(const TransformerConfig& config, const kernels::NumericProfile& profile, int64_t page_size,
                 int64_t max_sequences)
    : format_(profile.kv_cache),
      scale_(profile.kv_scale),
      page_size_(page_size),
      page_bytes_(page_size * config.kv_heads * config.head_dim * kernels::kv_bytes(profile.kv_cache)),
      limit_(max_sequences * ((config.max_positions + page_size - 1) / page_size)),
      pools_(static_cast<size_t>(2 * config.layers)) {}

void KvCache::grow() {
  // Doubling keeps the copies that a move costs in proportion to the pages used.
  const int64_t next = std::min(limit_, std::max<int64_t>(16, 2 * allocated_));
  if (next == allocated_) throw std::runtime_error("the KV cache is full: " + std::to_string(limit_) + " pages");
  for (auto& pool : pools_) pool.resize(static_cast<size_t>(next * page_bytes_));
  for (int64_t page = next; page-- > allocated_;) free_.push_back(static_cast<int32_t>(page));
  allocated_ = next;
}

void KvCache::extend(std::vector<int32_t>& pages, int64_t positions) {
  while (static_cast<int64_t>(pages.size()) * page_size_ < positions) {
    if (free_.empty()) grow();
    pages.push_back(free_.back());
    free_.pop_back();
  }
}

void KvCache::release(std::vector<int32_t>& pages) {
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
  pages.clear();
}

}  // namespace motley
