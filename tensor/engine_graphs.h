// Decode steps of an engine as graphs of a device (kernels/device_graph.h): what takes many small kernels is launched
// as a whole.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "kernels/device_graph.h"

namespace motley {

/// The number of rows, at least `rows`, that steps of so many rows are filled up to: few numbers, and few rows too
/// many.
int64_t decode_bucket(int64_t rows);
/// The same for what kernels are told of the longest context: a number of blocks of 4096 positions
/// (kernels/attention.h) that is a power of two.
int64_t longest_bucket(int64_t longest);

class DecodeGraphs {
 public:
  /// At most `most` graphs at a time, those of the buckets that were used last; 0: none.
  DecodeGraphs(const kernels::Device& device, int64_t most);

  /// Steps whose kernels are launched alike.
  struct Bucket {
    int64_t rows = 0, longest = 0;
    bool operator==(const Bucket&) const = default;
  };
  /// What a step's kernels are told besides: where everything is, but for weights, with which the graphs end (`clear`).
  /// The counts tell memory from what was there before.
  struct Places {
    const void* logits = nullptr;
    int64_t cache_pages = 0, list_moves = 0, draw_moves = 0;
    bool operator==(const Places&) const = default;
  };
  /// Does the work, which must be the same for the same bucket as long as the places are: as it is when the bucket is
  /// new, captured the second time, launched from then on. Where it cannot be captured it is done as it is.
  void run(const Bucket& bucket, const Places& places, const std::function<void()>& work);
  void clear() { entries_.clear(); }

  bool wanted() const { return most_ > 0; }
  int64_t launched() const { return launched_; }
  int64_t captured() const { return captured_; }
  /// Why nothing is captured any more; empty: it is.
  const std::string& refusal() const { return refusal_; }

 private:
  struct Entry {
    Bucket bucket;
    std::unique_ptr<kernels::Graph> graph;
  };
  Entry& entry_of(const Bucket& bucket);
  void capture(Entry& entry, const std::function<void()>& work);

  kernels::Device device_;
  size_t most_;
  kernels::GraphMemory memory_;
  Places places_;
  std::list<Entry> entries_;  // the last used first
  int64_t launched_ = 0, captured_ = 0;
  std::string refusal_;
};

}  // namespace motley
