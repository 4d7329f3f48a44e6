#include "tensor/pass_lists.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "kernels/device_buffer.h"
#include "kernels/device_staging.h"

namespace motley {
namespace {

/// The bytes of a pass's lists: ids, positions, page tables, then pages.
struct Places {
  size_t rows;
  size_t ids() const { return 0; }
  size_t positions() const { return rows * sizeof(int32_t); }
  size_t page_tables() const { return 2 * positions(); }  // hence aligned
  size_t pages() const { return page_tables() + rows * sizeof(const int32_t*); }
};

template <class T>
void put(std::vector<std::byte>& packed, size_t offset, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(packed.data() + offset, values.data(), values.size() * sizeof(T));
}

}  // namespace

void PassLists::send(int64_t page_size, int64_t longest) {
  count_ = static_cast<int64_t>(rows_.positions.size());
  longest_ = longest;
  for (const int32_t position : rows_.positions) longest_ = std::max<int64_t>(longest_, position + 1);
  positions_ = rows_.positions.data();
  page_tables_ = rows_.page_tables.data();
  if (device_.kind != kernels::DeviceKind::cpu) copy_to_device(page_size);
}

void PassLists::copy_to_device(int64_t page_size) {
  // Each table once, as long as its last row needs.
  struct Table {
    int64_t length = 0;
    size_t start = 0;
  };
  std::unordered_map<const int32_t*, Table> tables;
  for (size_t r = 0; r < rows_.page_tables.size(); ++r) {
    Table& table = tables[rows_.page_tables[r]];
    table.length = std::max<int64_t>(table.length, rows_.positions[r] / page_size + 1);
  }
  const Places places{rows_.positions.size()};
  size_t bytes = places.pages();
  for (auto& [pages, table] : tables) {
    table.start = bytes;
    bytes += static_cast<size_t>(table.length) * sizeof(int32_t);
  }
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_ = kernels::allocate_on(device_, 2 * bytes);
    bytes_ = 2 * bytes;
    ++moves_;
  }
  const auto* const there = static_cast<const std::byte*>(memory_.get());
  std::vector<const int32_t*> tables_there;
  for (const int32_t* table : rows_.page_tables)
    tables_there.push_back(reinterpret_cast<const int32_t*>(there + tables[table].start));
  packed_.resize(bytes);
  put(packed_, places.ids(), rows_.ids);
  put(packed_, places.positions(), rows_.positions);
  put(packed_, places.page_tables(), tables_there);
  for (const auto& [pages, table] : tables)
    std::memcpy(packed_.data() + table.start, pages, static_cast<size_t>(table.length) * sizeof(int32_t));
  kernels::upload(device_, memory_.get(), packed_.data(), bytes);
  positions_ = reinterpret_cast<const int32_t*>(there + places.positions());
  page_tables_ = reinterpret_cast<const int32_t* const*>(there + places.page_tables());
}

PassLists::Found::Found(const PassLists& lists) {
  if (lists.memory_ == nullptr) return;
  const Places places{static_cast<size_t>(lists.count_)};
  const auto list = [&](std::optional<ops::ListOnDevice>& found, const std::vector<int32_t>& values, size_t offset) {
    const std::shared_ptr<const void> there(lists.memory_, static_cast<const std::byte*>(lists.memory_.get()) + offset);
    found.emplace(values.data(), values.size() * sizeof(int32_t), there);
  };
  list(ids, lists.rows_.ids, places.ids());
  list(positions, lists.rows_.positions, places.positions());
}

}  // namespace motley
