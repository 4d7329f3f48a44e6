#include <algorithm>
#include <barrier>
#include <cmath>
#include <fstream>
#include <thread>

#include "app/bench.h"
#include "kernels/ceilings.h"
#include "kernels/packed_matrix.h"

namespace motley::app {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
// Two threads on one core share its units: the pair then does little more than
// one of them.
constexpr double kTwoCores = 1.7;

/// Seconds in which `threads` threads, started together, have all done work(thread).
double together(int64_t threads, const std::function<void(int64_t)>& work) {
  std::barrier ready(threads);
  std::vector<double> begins(static_cast<size_t>(threads)), ends(begins.size());
  std::vector<std::thread> all;
  for (int64_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      ready.arrive_and_wait();
      begins[static_cast<size_t>(t)] = seconds_now();
      work(t);
      ends[static_cast<size_t>(t)] = seconds_now();
    });
  }
  for (std::thread& thread : all) thread.join();
  return *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
}

/// "260M" as the kernel writes sizes of caches.
double parse_size(const std::string& text) {
  try {
    size_t end = 0;
    const double value = std::stod(text, &end);
    const char unit = end < text.size() ? text[end] : ' ';
    return value * (unit == 'K' ? 1024.0 : unit == 'M' ? kMebibyte : unit == 'G' ? 1024.0 * kMebibyte : 1.0);
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

double last_level_cache() {
  double largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::string text;
    if (in >> text) largest = std::max(largest, parse_size(text));
  }
  return largest;
}

double cold_footprint(const BenchArguments& arguments) {
  if (arguments.quick) return 2 * kMebibyte;
  return std::max(128 * kMebibyte, 1.25 * last_level_cache());
}

Ceilings measure_ceilings(const BenchArguments& arguments) {
  const Effort effort = effort_of(arguments);
  const int64_t most = std::thread::hardware_concurrency() >= 2 ? 2 : 1;
  Ceilings ceilings;
  ceilings.footprint = cold_footprint(arguments);
  const auto count = static_cast<int64_t>(ceilings.footprint / sizeof(float));
  // In the pages that weights have.
  std::vector<kernels::LineVector<float>> values(static_cast<size_t>(most),
                                                 kernels::LineVector<float>(static_cast<size_t>(count), 1.0f));
  std::vector<float> sink(static_cast<size_t>(most) * 64);  // a cache line each
  const int64_t rounds = arguments.quick ? 100000 : 3000000;
  std::vector<std::vector<double>> flops(2), bandwidth(2);
  std::vector<double> pair;
  for (int repetition = 0; repetition < effort.repetitions; ++repetition) {
    for (int64_t threads = 1; threads <= most; ++threads) {
      std::vector<double> done(static_cast<size_t>(threads));
      const double adding = together(threads, [&](int64_t t) {
        done[static_cast<size_t>(t)] = kernels::cpu::run_multiply_adds(rounds, &sink[static_cast<size_t>(t) * 64]);
      });
      flops[static_cast<size_t>(threads - 1)].push_back(done[0] * static_cast<double>(threads) / adding);
      const double reading = together(threads, [&](int64_t t) {
        sink[static_cast<size_t>(t) * 64] += kernels::cpu::read_floats(values[static_cast<size_t>(t)].data(), count);
      });
      bandwidth[static_cast<size_t>(threads - 1)].push_back(static_cast<double>(threads * count) * sizeof(float) /
                                                            reading);
    }
    if (most == 2) pair.push_back(flops[1].back() / flops[0].back());
  }
  for (int64_t threads = 1; threads <= most; ++threads) {
    const auto i = static_cast<size_t>(threads - 1);
    ceilings.by_threads.push_back({threads, spread_of(flops[i]).median, spread_of(bandwidth[i]).median});
  }
  ceilings.cores_in_pair = spread_of(pair).median;
  ceilings.two_cores = ceilings.cores_in_pair >= kTwoCores;
  return ceilings;
}

double roofline_share(const BenchRow& row, const Ceilings& ceilings) {
  for (const Ceiling& ceiling : ceilings.by_threads) {
    if (ceiling.threads != row.threads || row.seconds.median <= 0) continue;
    return std::max(row.flop / ceiling.flops, row.bytes / ceiling.bytes_per_second) / row.seconds.median;
  }
  return 0;
}

}  // namespace motley::app
