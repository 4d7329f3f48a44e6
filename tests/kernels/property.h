// Random cases of one property: what a row gives, it gives alone, in any batch, on any number of threads and on every
// instruction set. A failure prints the seed that repeats it.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/philox.h"
#include "tests/kernels/values.h"

namespace motley::kernels {

inline int64_t environment_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

/// check(draw) with the numbers of `few` seeds, or of as many as MOTLEY_PROPERTY_CASES says, from MOTLEY_PROPERTY_SEED
/// (1) on.
template <class Check>
void for_random_cases(int64_t few, Check check) {
  const int64_t cases = environment_number("MOTLEY_PROPERTY_CASES", few);
  const int64_t first = environment_number("MOTLEY_PROPERTY_SEED", 1);
  for (int64_t seed = first; seed < first + cases; ++seed) {
    INFO("repeat with MOTLEY_PROPERTY_SEED=" << seed << " MOTLEY_PROPERTY_CASES=1");
    Values draw(mix(static_cast<uint64_t>(seed), 0));
    check(draw);
  }
}

inline bool chance(Values& draw, int64_t one_in) { return draw.below(one_in) == 0; }
/// In [low, high], each magnitude about as likely as the others.
inline int64_t spread(Values& draw, int64_t low, int64_t high) {
  const double ratio = static_cast<double>(high + 1) / static_cast<double>(low);
  return std::min(high, static_cast<int64_t>(static_cast<double>(low) * std::pow(ratio, (draw.next() + 1.0) / 2)));
}
template <class T>
const T& pick(Values& draw, const std::vector<T>& from) {
  return from[static_cast<size_t>(draw.below(static_cast<int64_t>(from.size())))];
}

/// `count` values of one row. Some rows hold NaN, infinities, or values near the ends of the type's range.
template <class T>
std::vector<T> random_row(Values& draw, int64_t count) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double largest = dtype_of<T>() == DType::f16 ? 65504.0 : 3e38;
  const int64_t kind = draw.below(14);
  const double scale = kind == 0 ? largest : kind == 1 ? 1e-40 : kind == 2 ? 0.0 : std::exp2(draw.next() * 4);
  std::vector<T> row;
  for (int64_t i = 0; i < count; ++i) row.push_back(as<T>(draw.next() * scale));
  if (count > 0 && kind >= 3 && kind <= 6)
    row[static_cast<size_t>(draw.below(count))] = as<T>(kind == 3 ? nan : kind == 4 ? inf : kind == 5 ? -inf : largest);
  return row;
}
template <class T>
std::vector<std::vector<T>> random_rows(Values& draw, int64_t rows, int64_t count) {
  std::vector<std::vector<T>> all;
  for (int64_t r = 0; r < rows; ++r) all.push_back(random_row<T>(draw, count));
  return all;
}

/// Chosen rows, one after another.
template <class T>
std::vector<T> gathered(const std::vector<std::vector<T>>& rows, std::span<const int64_t> chosen) {
  std::vector<T> all;
  for (const int64_t r : chosen)
    all.insert(all.end(), rows[static_cast<size_t>(r)].begin(), rows[static_cast<size_t>(r)].end());
  return all;
}

/// What a batch gives for each of its rows; conversions to double keep every bit that counts (not the payload of NaN,
/// which the order of an addition's operands decides).
using RowResults = std::vector<std::vector<double>>;

/// Adds elements [r * width, (r + 1) * width) of `values` to the result of row r.
template <class T>
void add_results(RowResults& results, const std::vector<T>& values) {
  const size_t width = results.empty() ? 0 : values.size() / results.size();
  for (size_t r = 0; r < results.size(); ++r)
    for (size_t i = 0; i < width; ++i) results[r].push_back(real(values[r * width + i]));
}

inline void require_same_row(const std::vector<double>& found, const std::vector<double>& alone) {
  REQUIRE(found.size() == alone.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(alone[i])) continue;
    if (std::memcmp(&found[i], &alone[i], sizeof(double)) == 0) continue;
    FAIL("element " << i << " is " << found[i] << ", alone " << alone[i]);
  }
}

/// Threads and an instruction set for a scope.
class Conditions {
 public:
  Conditions(int threads, int instruction_set) : threads_(threads) { cpu::use_instruction_set(instruction_set); }
  ~Conditions() { cpu::use_best_instruction_set(); }

 private:
  Threads threads_;
};

/// batch(rows) gives RowResults for rows of a pool of `rows`; rows may repeat. Each row's result in random batches, at
/// random places, must be what it gives alone on one thread.
template <class Batch>
void check_rows(Values& draw, int64_t rows, int64_t largest_batch, Batch batch) {
  RowResults alone;
  for (int64_t r = 0; r < rows; ++r) alone.push_back(batch(std::span<const int64_t>(&r, 1)).at(0));
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<int64_t> chosen(static_cast<size_t>(spread(draw, 1, largest_batch)));
    for (int64_t& r : chosen) r = draw.below(rows);
    const auto threads = static_cast<int>(1 + draw.below(3));
    const auto set = static_cast<int>(draw.below(cpu::instruction_sets()));
    const Conditions conditions(threads, set);
    const RowResults found = batch(std::span<const int64_t>(chosen));
    REQUIRE(found.size() == chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
      INFO("row " << chosen[i] << " at place " << i << " of a batch of " << chosen.size() << ", threads " << threads
                  << ", instruction set " << set);
      require_same_row(found[i], alone[static_cast<size_t>(chosen[i])]);
    }
  }
}

}  // namespace motley::kernels
