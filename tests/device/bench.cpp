#include "tests/device/bench.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kernels/device_memory.h"

namespace motley::device_bench {

void finish(const kernels::Device& device) {
  if (device.kind == kernels::DeviceKind::cuda) kernels::cuda::synchronize();
  if (device.kind == kernels::DeviceKind::emulated) kernels::emulated::synchronize();
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const Setting& setting, const std::function<void()>& call) {
  const auto timed = [&](int count) {
    finish(setting.device);
    const double begin = seconds_now();
    for (int i = 0; i < count; ++i) call();
    finish(setting.device);
    return seconds_now() - begin;
  };
  if (setting.tiny) return timed(1);
  timed(2);
  const double one = timed(3) / 3;
  const int count = one > 0.1 ? 2 : static_cast<int>(0.2 / one) + 1;
  return timed(count) / count;
}

namespace {

struct Rates {
  double tflops = 0, of_peak = 0, gigabytes = 0, of_bandwidth = 0, tokens = 0;
};

Rates rates_of(const Setting& setting, const Row& row) {
  Rates rates;
  rates.tflops = row.flop / row.seconds * 1e-12;
  rates.gigabytes = row.bytes / row.seconds * 1e-9;
  rates.tokens = row.tokens / row.seconds;
  if (row.peak_tflops > 0) rates.of_peak = rates.tflops / row.peak_tflops;
  if (setting.card != nullptr) rates.of_bandwidth = rates.gigabytes / setting.card->bandwidth;
  return rates;
}

std::string cell(double value, const char* format, int width) {
  char text[32] = "-";
  if (value > 0) std::snprintf(text, sizeof text, format, value);
  char out[48];
  std::snprintf(out, sizeof out, " %*s", width, text);
  return out;
}

}  // namespace

std::string table_head() {
  char out[160];
  std::snprintf(out, sizeof out, "%-48s %12s %9s %7s %9s %9s %10s", "", "us", "TFLOP/s", "of peak", "GB/s", "of memory",
                "tokens/s");
  return out;
}

std::string table_line(const Setting& setting, const Row& row) {
  const Rates rates = rates_of(setting, row);
  char name[80];
  std::snprintf(name, sizeof name, "%-48s", row.name.c_str());
  std::string line = name + cell(row.seconds * 1e6, "%.1f", 12) + cell(rates.tflops, "%.1f", 9) +
                     cell(100 * rates.of_peak, "%.1f %%", 7) + cell(rates.gigabytes, "%.1f", 9) +
                     cell(100 * rates.of_bandwidth, "%.1f %%", 9) + cell(rates.tokens, "%.1f", 10);
  if (row.ratio > 0) line += cell(row.ratio, "%.2f", 7) + " x " + row.against;
  return line;
}

std::string json_line(const Setting& setting, const Row& row) {
  const Rates rates = rates_of(setting, row);
  nlohmann::ordered_json json{{"group", row.group}, {"name", row.name}, {"seconds", row.seconds}};
  const std::pair<const char*, double> numbers[] = {{"tflops", rates.tflops},
                                                    {"share_of_peak", rates.of_peak},
                                                    {"gigabytes_per_second", rates.gigabytes},
                                                    {"share_of_bandwidth", rates.of_bandwidth},
                                                    {"tokens_per_second", rates.tokens}};
  for (const auto& [name, value] : numbers)
    if (value > 0) json[name] = value;
  if (row.ratio > 0) json["against"] = row.against, json["ratio"] = row.ratio;
  return json.dump();
}

}  // namespace motley::device_bench
