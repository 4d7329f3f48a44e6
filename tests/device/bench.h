// The benchmarks of a device, one file per kind (bench_*.cpp): what they share. device_bench.cpp runs them by name.
#pragma once

#include <functional>
#include <string>

#include "kernels/device.h"
#include "tests/device/card_peaks.h"

namespace motley::device_bench {

struct Setting {
  kernels::Device device;
  bool tiny = false;                // the smallest sizes: a dry run on the emulated device
  const CardPeaks* card = nullptr;  // null: not known
};

/// What was timed. The rates follow from one call's work; bytes are as stored, each read or written once.
struct Row {
  std::string group, name;
  double seconds = 0;  // of one call
  double flop = 0, bytes = 0, tokens = 0;
  double peak_tflops = 0;  // of the units that the row uses; 0: no share is told
  std::string against;     // another row's name, and how many times as fast as it this one is: its rate over that one's
  double ratio = 0;
};

/// Waits for all work of the device.
void finish(const kernels::Device& device);
double seconds_now();
/// Seconds of one call, the device's work included: the mean over a fifth of a second, after a warm-up. Tiny: of one.
double seconds_of(const Setting& setting, const std::function<void()>& call);

/// Takes each row when it is known: a benchmark that runs out of time has told what it knew.
using Report = std::function<void(const Row&)>;
void products(const Setting& setting, const Report& report);
void attention(const Setting& setting, const Report& report);
void quantizers(const Setting& setting, const Report& report);
void decode(const Setting& setting, const Report& report);
void trainer(const Setting& setting, const Report& report);

/// A line with the rates of a row and its shares of the card's peaks.
std::string table_head();
std::string table_line(const Setting& setting, const Row& row);
std::string json_line(const Setting& setting, const Row& row);

}  // namespace motley::device_bench
