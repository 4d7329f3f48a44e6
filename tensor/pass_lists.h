// The rows of a pass where its kernels read them: the host's own lists on the CPU, else a copy on the device, sent in
// one piece that nobody waits for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "tensor/list_on_device.h"

namespace motley {

/// One token, position and page table per row; a table lists the pages of positions 0 to the row's.
struct PassRows {
  std::vector<int32_t> ids, positions;
  std::vector<const int32_t*> page_tables;
};

class PassLists {
 public:
  explicit PassLists(const kernels::Device& device) : device_(device) {}

  /// To be filled for the next pass; then `send` them before its kernels are launched.
  PassRows& rows() { return rows_; }
  /// Kernels are told that no context is longer than `longest`, or than the longest that there is.
  void send(int64_t page_size, int64_t longest = 0);
  int64_t count() const { return count_; }
  int64_t longest() const { return longest_; }
  /// [rows], of the device.
  const int32_t* positions() const { return positions_; }
  const int32_t* const* page_tables() const { return page_tables_; }
  /// How often the copies got other memory so far: until then they are at the same places for as many rows.
  int64_t moves() const { return moves_; }
  /// While they live, this thread's ops find the ids and positions of the rows where they are.
  struct Found {
    explicit Found(const PassLists& lists);
    std::optional<ops::ListOnDevice> ids, positions;
  };

 private:
  void copy_to_device(int64_t page_size);

  kernels::Device device_;
  PassRows rows_;
  int64_t count_ = 0, longest_ = 0;
  const int32_t* positions_ = nullptr;
  const int32_t* const* page_tables_ = nullptr;
  std::shared_ptr<void> memory_;  // ids, positions, page tables, and the pages that they point to
  size_t bytes_ = 0;              // of it
  int64_t moves_ = 0;
  std::vector<std::byte> packed_;
};

}  // namespace motley
