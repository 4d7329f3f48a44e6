// Which sampler group a new session goes to, from capacities and shares. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace motley::actors {

/// Each group's share of new sessions; sums to 1 if any group can serve. `capacity`: tokens per busy second (or, in
/// lock-step, replicas); 0 for a group that cannot serve now. A fixed share stands as given; the other groups divide
/// what is left in proportion to their capacity. Fixed shares that leave nothing, or have no one to leave it to, are
/// scaled to 1.
std::vector<double> group_shares(std::span<const std::optional<double>> fixed, std::span<const double> capacity);

/// Asynchronous choice: after n choices every group has been chosen share * n times, give or take one per change of the
/// shares.
class ProportionalChoice {
 public:
  explicit ProportionalChoice(size_t groups) : credit_(groups, 0.0) {}
  size_t choose(std::span<const double> shares);

 private:
  std::vector<double> credit_;
};

/// Lock-step choice: depends on shares and the session's number alone. Consecutive numbers are spread by the golden
/// ratio sequence, whose discrepancy falls as log(n) / n.
size_t choice_by_number(std::span<const double> shares, uint64_t session);

/// Tokens per busy second of full engines over about the last ten busy seconds.
class MeasuredCapacity {
 public:
  void add(double tokens, double seconds);
  double tokens_per_second() const { return seconds_ > 0 ? tokens_ / seconds_ : 0.0; }

 private:
  double tokens_ = 0, seconds_ = 0;
};

}  // namespace motley::actors
