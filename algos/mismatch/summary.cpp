#include "algos/mismatch/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::algos::mismatch {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMostPositionBins = 16, kMostLengthBins = 8;
constexpr size_t kHistogramSteps = 40;
constexpr double kTop1Edges[] = {0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0};

/// Linear between neighbours of an ascending sample that is not empty.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

template <class Value>
std::vector<double> values_of(std::span<const TokenGap> gaps, Value value) {
  std::vector<double> values;
  for (const TokenGap& gap : gaps) values.push_back(gap.finite ? value(gap) : kNone);
  return values;
}

/// Equal steps from 0 over `count` whole numbers, at most `most` of them.
std::vector<Bin> equal_bins(int64_t first, int64_t count, int64_t most) {
  std::vector<Bin> bins;
  const int64_t step = std::max<int64_t>(1, (count + most - 1) / most);
  for (int64_t low = 0; low < count; low += step) {
    Bin bin;
    bin.low = static_cast<double>(first + low);
    bin.high = static_cast<double>(first + std::min(low + step, count));
    bins.push_back(bin);
  }
  return bins;
}

Bin* bin_of(std::vector<Bin>& bins, double value) {
  for (Bin& bin : bins) {
    if (value >= bin.low && (value < bin.high || &bin == &bins.back())) return &bin;
  }
  return nullptr;
}

void add(Bin* bin, const TokenGap& gap) {
  if (bin == nullptr || !gap.finite) return;
  ++bin->tokens;
  bin->kl += gap.kl_qp;
  bin->gap += gap.gap;
  bin->absolute_gap += std::abs(gap.gap);
  bin->entropy += gap.entropy;
  bin->same_top1 += gap.same_top1 ? 1.0 : 0.0;
}

/// Sums become means; bins without tokens are dropped.
void finish(std::vector<Bin>& bins) {
  double all = 0.0;
  for (const Bin& bin : bins) all += bin.kl;
  std::erase_if(bins, [](const Bin& bin) { return bin.tokens == 0; });
  for (Bin& bin : bins) {
    const auto count = static_cast<double>(bin.tokens);
    bin.share = all > 0.0 ? bin.kl / all : 0.0;
    for (double* sum : {&bin.kl, &bin.gap, &bin.absolute_gap, &bin.entropy, &bin.same_top1}) *sum /= count;
  }
}

void fill_bins(Summary& summary, std::span<const TokenGap> gaps, std::span<const int64_t> offsets) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
  summary.by_position = equal_bins(0, longest, kMostPositionBins);
  summary.by_length = equal_bins(1, longest, kMostLengthBins);
  for (size_t i = 0; i + 1 < std::size(kTop1Edges); ++i) {
    Bin bin;
    bin.low = kTop1Edges[i], bin.high = kTop1Edges[i + 1];
    summary.by_top1.push_back(bin);
  }
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    Bin* of_length = bin_of(summary.by_length, static_cast<double>(offsets[i + 1] - offsets[i]));
    if (of_length != nullptr) ++of_length->responses;
    for (int64_t t = offsets[i]; t < offsets[i + 1]; ++t) {
      const TokenGap& gap = gaps[static_cast<size_t>(t)];
      add(of_length, gap);
      add(bin_of(summary.by_position, static_cast<double>(t - offsets[i])), gap);
      add(bin_of(summary.by_top1, gap.top1), gap);
    }
  }
  for (std::vector<Bin>* bins : {&summary.by_position, &summary.by_length, &summary.by_top1}) finish(*bins);
}

Histogram histogram_of(const std::vector<double>& values) {
  std::vector<double> magnitudes;
  for (const double value : values) magnitudes.push_back(std::abs(value));
  std::sort(magnitudes.begin(), magnitudes.end());
  Histogram histogram{magnitudes.empty() ? 0.0 : quantile(magnitudes, 0.99), {}};
  histogram.counts.assign(kHistogramSteps, 0);
  for (const double value : values) {
    const double place = histogram.edge > 0.0 ? (value / histogram.edge + 1.0) / 2.0 : 0.5;
    const auto step = static_cast<int64_t>(std::floor(place * static_cast<double>(kHistogramSteps)));
    ++histogram.counts[static_cast<size_t>(std::clamp<int64_t>(step, 0, kHistogramSteps - 1))];
  }
  return histogram;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double mean = 0.0, squares = 0.0;
  for (const double value : values) mean += value / count;
  for (const double value : values) squares += (value - mean) * (value - mean) / count;
  const auto at = [&](double share) { return quantile(values, share); };
  return {mean,    std::sqrt(squares), values.front(), values.back(), at(0.01), at(0.05), at(0.25),
          at(0.5), at(0.75),           at(0.95),       at(0.99)};
}

Summary summarize(std::span<const TokenGap> gaps, std::span<const int64_t> offsets) {
  Summary summary;
  summary.responses = static_cast<int64_t>(offsets.size()) - 1;
  summary.tokens = static_cast<int64_t>(gaps.size());
  std::vector<double> differences;
  double same = 0.0, outside = 0.0;
  for (const TokenGap& gap : gaps) {
    if (!gap.finite) {
      ++summary.not_finite;
      continue;
    }
    const double ratio = std::exp(-gap.gap);
    differences.push_back(gap.difference);
    same += gap.same_top1 ? 1.0 : 0.0;
    outside += ratio < 0.2 || ratio > 5.0 ? 1.0 : 0.0;
    summary.largest_ratio = std::max(summary.largest_ratio, ratio);
  }
  const auto used = static_cast<double>(differences.size());
  summary.same_top1 = used > 0.0 ? same / used : kNone;
  summary.outside = used > 0.0 ? outside / used : kNone;

  const std::vector<double> kl = values_of(gaps, [](const TokenGap& gap) { return gap.kl_qp; });
  const std::vector<double> gap = values_of(gaps, [](const TokenGap& each) { return each.gap; });
  const auto mean_of = [&](auto value) { return token_mean({values_of(gaps, value), offsets}); };
  summary.kl_qp = token_mean({kl, offsets});
  summary.kl_pq = mean_of([](const TokenGap& each) { return each.kl_pq; });
  summary.variation = mean_of([](const TokenGap& each) { return each.variation; });
  summary.k1 = token_mean({gap, offsets});
  summary.k3 = mean_of([](const TokenGap& each) { return std::expm1(-each.gap) + each.gap; });
  summary.sequence_kl = response_mean({kl, offsets});
  summary.sequence_k1 = response_mean({gap, offsets});
  summary.difference = spread_of(differences);
  summary.histogram = histogram_of(differences);
  summary.running = running_slope({gap, offsets});
  summary.gap_by_position = position_slope({gap, offsets});
  summary.kl_by_position = position_slope({kl, offsets});
  fill_bins(summary, gaps, offsets);
  return summary;
}

}  // namespace motley::algos::mismatch
