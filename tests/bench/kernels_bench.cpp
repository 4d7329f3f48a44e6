// The cases of `motley bench kernels` as a Google Benchmark suite, for its filters, statistics and comparing tools.
#include <benchmark/benchmark.h>

#include "app/bench.h"
#include "kernels/parallel.h"

int main(int argc, char** argv) {
  using namespace motley;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  app::BenchArguments arguments;
  arguments.threads = {1};
  for (const auto& [group, make] : app::kernel_groups()) {
    for (app::BenchCase& c : make(arguments)) {
      const std::string name = group + "/" + c.row.name;
      benchmark::RegisterBenchmark(name.c_str(), [c = std::move(c)](benchmark::State& state) {
        kernels::set_compute_threads(static_cast<int>(c.row.threads));
        for (auto _ : state) c.call();
        const auto rate = [](double work) {
          return benchmark::Counter(work * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
        };
        if (c.row.flop > 0) state.counters["GFLOP/s"] = rate(c.row.flop);
        if (c.row.bytes > 0) state.counters["GB/s"] = rate(c.row.bytes);
      });
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
