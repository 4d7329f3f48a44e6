// The table of tests/kernels/device_cases.h on a GPU: the CUDA bodies against the CPU's, bit for bit, or against
// float64 and themselves where no bits are promised. Prints a line per kernel and type; exit 1 when a case differs.
// `make device-check` runs it where there is a GPU.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "kernels/device_memory.h"
#include "tests/kernels/device_cases.h"

using namespace motley::kernels;

namespace {

struct Row {
  std::string kernel, type;
  int cases = 0, failed = 0, absent = 0;
};

std::string outcome(const DeviceCase& c) {
  try {
    const Outputs got = c.run({DeviceKind::cuda, 0});
    if (c.cpu_bits) return difference(got, c.run({DeviceKind::cpu, 0}));
    const std::string wrong = c.check(got);
    return wrong.empty() ? difference(c.run({DeviceKind::cuda, 0}), got) : wrong;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

int main() {
  if (cuda::device_count() == 0) {
    std::fputs("kernels_check: no CUDA device that can be used\n", stderr);
    return 1;
  }
  cuda::use_device(0);
  std::vector<Row> rows;
  int failed = 0;
  for (const DeviceCase& c : device_cases()) {
    const auto same = [&](const Row& row) { return row.kernel == c.kernel && row.type == c.type; };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {c.kernel, c.type});
    if (c.only_capability != 0 && c.only_capability != cuda::compute_capability()) {
      ++row->absent;
      continue;
    }
    ++row->cases;
    const std::string wrong = outcome(c);
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
