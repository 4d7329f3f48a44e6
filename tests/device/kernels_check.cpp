// The table of tests/kernels/device_cases.h on a device: its bodies against the CPU's, bit for bit, or against float64
// and themselves where no bits are promised: kernels_check [--device cuda:0] [--short]. Short: two cases of each kernel
// and type, for compute-sanitizer. Prints a line per kernel and type; exit 1 when a case differs, 2 for wrong
// arguments.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "tests/kernels/device_cases.h"

using namespace motley::kernels;

namespace {

struct Row {
  std::string kernel, type;
  int cases = 0, failed = 0, absent = 0;
};

std::string outcome(const DeviceCase& c, const Device& device) {
  try {
    const Outputs got = c.run(device);
    if (c.cpu_bits) return difference(got, c.run({DeviceKind::cpu, 0}));
    const std::string wrong = c.check(got);
    return wrong.empty() && c.repeats ? difference(c.run(device), got) : wrong;
  } catch (const std::exception& error) {
    return error.what();
  }
}

int check(const Device& device, bool only_some) {
  select_device(device);
  const int capability = device.kind == DeviceKind::cuda ? cuda::compute_capability() : 0;
  std::vector<Row> rows;
  int failed = 0;
  for (const DeviceCase& c : device_cases()) {
    const auto same = [&](const Row& row) { return row.kernel == c.kernel && row.type == c.type; };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {c.kernel, c.type});
    if (c.only_capability != 0 && c.only_capability != capability) {
      ++row->absent;
      continue;
    }
    if (only_some && row->cases == 2) continue;
    ++row->cases;
    const std::string wrong = outcome(c, device);
    if (wrong.empty()) continue;
    ++row->failed;
    ++failed;
    std::fprintf(stderr, "%s: %s\n", c.name().c_str(), wrong.c_str());
  }
  std::printf("%-24s %-24s %6s %6s %10s\n", "kernel", "type", "cases", "failed", "not here");
  for (const Row& row : rows)
    std::printf("%-24s %-24s %6d %6d %10d\n", row.kernel.c_str(), row.type.c_str(), row.cases, row.failed, row.absent);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  Device device{DeviceKind::cuda, 0};
  bool only_some = false;
  try {
    for (int i = 1; i < count; ++i) {
      const std::string word = words[i];
      if (word == "--short") {
        only_some = true;
      } else if (word == "--device" && i + 1 < count) {
        device = parse_device(words[++i]);
      } else {
        throw std::invalid_argument("'" + word + "': takes --device NAME and --short");
      }
    }
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "kernels_check: %s\n", error.what());
    return 2;
  }
  try {
    return check(device, only_some);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_check: %s\n", error.what());
    return 1;
  }
}
