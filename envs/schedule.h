// Which entry of a weighted mix the n-th pick is. After any number n of picks an entry has been picked n times its
// share, rounded up or down: the quota method of apportionment (Balinski and Young, American Mathematical Monthly 82,
// 1975).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace motley::envs {

/// Thread-safe. A pure function of the weights and n; counts are kept now and then, so that a pick costs some
/// microseconds. The first pick beyond all earlier ones costs their distance: 10 million take a fraction of a second.
class Schedule {
 public:
  /// Weights are positive and finite; whole-number weights give exact shares.
  explicit Schedule(std::vector<double> weights);
  struct Pick {
    size_t entry = 0;
    uint64_t earlier = 0;  // picks of this entry before
  };
  Pick at(uint64_t n) const;
  /// Picks of each entry among the first n.
  std::vector<uint64_t> counts(uint64_t n) const;
  /// Share of an entry.
  double share(size_t entry) const { return weights_[entry] / sum_; }

 private:
  size_t next(const std::vector<uint64_t>& counts, uint64_t n) const;

  std::vector<double> weights_;
  double sum_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<uint64_t>> kept_;  // counts before picks 0, kStride, 2 kStride, ...
};

}  // namespace motley::envs
