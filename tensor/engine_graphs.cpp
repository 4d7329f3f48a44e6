#include "tensor/engine_graphs.h"

#include <algorithm>
#include <bit>
#include <exception>

namespace motley {

int64_t decode_bucket(int64_t rows) {
  // A power of two up to 8, then a multiple of an eighth of the power of two above: at most 8 rows in 64 are too many.
  const auto above = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t step = rows <= 8 ? above : std::max<int64_t>(8, above / 8);
  return (rows + step - 1) / step * step;
}

int64_t longest_bucket(int64_t longest) {
  constexpr int64_t kBlock = 4096;
  return kBlock * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((longest + kBlock - 1) / kBlock)));
}

DecodeGraphs::DecodeGraphs(const kernels::Device& device, int64_t most)
    : device_(device),
      most_(device.kind == kernels::DeviceKind::cpu ? 0 : static_cast<size_t>(most)),
      memory_(device) {}

void DecodeGraphs::run(const Bucket& bucket, const Places& places, const std::function<void()>& work) {
  if (!wanted()) return work();
  if (!(places == places_)) clear();
  places_ = places;
  const bool known =
      std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.bucket == bucket; });
  Entry& entry = entry_of(bucket);
  if (known && !entry.graph && refusal_.empty()) capture(entry, work);
  if (!entry.graph) return work();
  entry.graph->launch();
  ++launched_;
}

DecodeGraphs::Entry& DecodeGraphs::entry_of(const Bucket& bucket) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.bucket == bucket; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    if (entries_.size() == most_) entries_.pop_back();
    entries_.push_front({bucket, nullptr});
  }
  return entries_.front();
}

void DecodeGraphs::capture(Entry& entry, const std::function<void()>& work) {
  try {
    entry.graph = std::make_unique<kernels::Graph>(device_, memory_, work);
    ++captured_;
  } catch (const std::exception& error) {
    refusal_ = error.what();
  }
}

}  // namespace motley
