#include "tensor/kv_cache.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/device_buffer.h"

namespace motley {
namespace {

/// Of the 128 TiB that a process has on common 64-bit systems; what is reserved and not used costs nothing.
constexpr int64_t kMostAddresses = int64_t{1} << 44;

int64_t page_limit(int64_t max_positions, int64_t page_size, int64_t max_sequences, int64_t bytes_per_page) {
  const int64_t most =
      std::min<int64_t>(kMostAddresses / std::max<int64_t>(bytes_per_page, 1), std::numeric_limits<int32_t>::max());
  const int64_t each = (max_positions + page_size - 1) / page_size;
  return max_sequences > most / each ? most : max_sequences * each;
}

size_t whole_units(int64_t bytes) {
  const size_t unit = system_page_size();
  return (static_cast<size_t>(bytes) + unit - 1) / unit * unit;
}

}  // namespace

KvCache::KvCache(const TransformerConfig& config, const kernels::NumericProfile& profile, int64_t page_size,
                 int64_t max_sequences, const Device& device)
    : format_(profile.kv_cache),
      scale_(profile.kv_scale),
      page_size_(page_size),
      page_bytes_(page_size * config.kv_heads * config.head_dim * kernels::kv_bytes(profile.kv_cache)),
      pools_(2 * config.layers),
      limit_(page_limit(config.max_positions, page_size, max_sequences, pools_ * page_bytes_)),
      device_(device),
      pool_bytes_(0) {
  if (device.kind != kernels::DeviceKind::cpu) return;
  pool_bytes_ = whole_units(limit_ * page_bytes_);
  reserved_.emplace(static_cast<size_t>(pools_) * pool_bytes_);
}

/// Memory for the first `pages` pages of every pool.
void KvCache::make_room(int64_t pages) {
  if (reserved_) {
    for (int64_t i = 0; i < pools_; ++i) {
      const size_t first = static_cast<size_t>(i) * pool_bytes_;
      reserved_->commit(first + static_cast<size_t>(allocated_ * page_bytes_),
                        first + static_cast<size_t>(pages * page_bytes_));
    }
    return;
  }
  const auto bytes = static_cast<size_t>(pages * page_bytes_);
  const std::shared_ptr<void> larger = kernels::allocate_on(device_, static_cast<size_t>(pools_) * bytes);
  for (int64_t i = 0; i < pools_; ++i) {
    kernels::copy_bytes(static_cast<std::byte*>(larger.get()) + static_cast<size_t>(i) * bytes, device_, pool(i),
                        device_, static_cast<size_t>(allocated_ * page_bytes_));
  }
  memory_ = larger;
  pool_bytes_ = bytes;
}

void KvCache::grow() {
  const int64_t next = std::min(limit_, std::max<int64_t>(16, 2 * allocated_));
  if (next == allocated_) {
    throw std::runtime_error("the KV cache is full: all its " + std::to_string(limit_) + " pages of " +
                             std::to_string(page_size_) + " positions are held");
  }
  make_room(next);
  holders_.resize(static_cast<size_t>(next), 0);
  free_.reserve(static_cast<size_t>(next));
  for (int64_t page = next; page-- > allocated_;) free_.push_back(static_cast<int32_t>(page));
  allocated_ = next;
}

int32_t KvCache::take() {
  if (free_.empty()) grow();
  const int32_t page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  return page;
}

int32_t KvCache::release(int32_t page) {
  int32_t& holders = holders_[static_cast<size_t>(page)];
  MOTLEY_CHECK(holders > 0, "KvCache", "page " + std::to_string(page) + " is given back by nobody who holds it");
  if (--holders == 0) free_.push_back(page);
  return holders;
}

void KvCache::extend(std::vector<int32_t>& pages, int64_t positions) {
  while (static_cast<int64_t>(pages.size()) * page_size_ < positions) pages.push_back(take());
}

void KvCache::release(std::vector<int32_t>& pages) {
  for (; !pages.empty(); pages.pop_back()) release(pages.back());
}

void KvCache::copy(int32_t from, int32_t to, int64_t positions) {
  const auto bytes = static_cast<size_t>(page_bytes_ / page_size_ * positions);
  for (int64_t i = 0; i < pools_; ++i)
    kernels::copy_bytes(pool(i) + to * page_bytes_, device_, pool(i) + from * page_bytes_, device_, bytes);
}

}  // namespace motley
