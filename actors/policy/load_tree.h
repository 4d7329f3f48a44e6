// The least loaded of many replicas and the sum of their capacities, in O(log n) per change. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace motley::actors {

/// A tournament tree over places 0, 1, 2, ...: every inner node holds the winner below it and the sum of capacities,
/// which is added up anew from the leaves, so that it never drifts.
class LoadTree {
 public:
  /// Sets the place's number of sessions and its capacity (at least 0). Places grow as they are named.
  void set(size_t place, int64_t sessions, double capacity);
  /// Takes the place out: it never wins and adds nothing.
  void clear(size_t place);
  /// The place with the fewest sessions, the lowest of equals; nothing if there is none.
  std::optional<size_t> least() const;
  /// Of a place that is set.
  int64_t sessions(size_t place) const { return sessions_[place]; }
  /// Of all places that are set.
  double capacity() const { return sum_.empty() ? 0.0 : sum_[1]; }

 private:
  void grow(size_t places);
  void update(size_t node);
  std::vector<int64_t> sessions_;  // by place; kAbsent when cleared
  std::vector<size_t> winner_;     // of the tree's nodes: 1 is the root, 2n and 2n + 1 are below n, leaves come last
  std::vector<double> sum_;
};

}  // namespace motley::actors
