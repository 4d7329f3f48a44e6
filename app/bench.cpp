// motley bench: how fast this machine does what motley does, against what the
// machine can do at best.
#include "app/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "app/input_error.h"
#include "kernels/ceilings.h"

namespace motley::app {
namespace {

using Json = nlohmann::ordered_json;

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown";
}

Json machine_json() {
  return {{"processor", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"instruction_set", kernels::cpu::instruction_set_name()},
          {"last_level_cache_bytes", last_level_cache()}};
}

Json build_json() {
#if defined(NDEBUG)
  const bool assertions = false;
#else
  const bool assertions = true;
#endif
#if defined(__OPTIMIZE__)
  const bool optimized = true;
#else
  const bool optimized = false;
#endif
  return {{"version", MOTLEY_VERSION}, {"compiler", __VERSION__}, {"optimized", optimized}, {"assertions", assertions}};
}

Json ceilings_json(const Ceilings& ceilings) {
  Json json{{"footprint_bytes", ceilings.footprint},
            {"cores_in_pair", ceilings.cores_in_pair},
            {"two_cores", ceilings.two_cores},
            {"by_threads", Json::array()}};
  for (const Ceiling& c : ceilings.by_threads) {
    json["by_threads"].push_back(
        {{"threads", c.threads}, {"gflops", c.flops * 1e-9}, {"read_gigabytes_per_second", c.bytes_per_second * 1e-9}});
  }
  return json;
}

Json row_json(const BenchRow& row, const Ceilings& ceilings) {
  const double seconds = row.seconds.median;
  Json json{{"group", row.group}, {"name", row.name}, {"threads", row.threads}};
  for (const auto& [key, value] : row.more.items()) json[key] = value;
  json["seconds"] = {{"median", seconds}, {"low", row.seconds.low}, {"high", row.seconds.high}};
  json["flop"] = row.flop;
  json["bytes"] = row.bytes;
  json["tokens"] = row.tokens;
  if (seconds <= 0) return json;
  if (row.flop > 0) json["gflops"] = row.flop / seconds * 1e-9;
  if (row.bytes > 0) json["gigabytes_per_second"] = row.bytes / seconds * 1e-9;
  if (row.tokens > 0) json["tokens_per_second"] = row.tokens / seconds;
  if (const double share = roofline_share(row, ceilings); share > 0) json["roofline_share"] = share;
  return json;
}

/// "12.3 us"
std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string rate_text(double value) { return value > 0 ? fmt::format("{:.1f}", value) : "-"; }

std::string ceilings_text(const Ceilings& ceilings) {
  std::string out;
  for (const Ceiling& c : ceilings.by_threads) {
    out += fmt::format(
        "ceiling, {} thread{}: {:.0f} GFLOP/s of multiply-adds, "
        "{:.1f} GB/s read from {:.0f} MiB each\n",
        c.threads, c.threads == 1 ? "" : "s", c.flops * 1e-9, c.bytes_per_second * 1e-9,
        ceilings.footprint / (1024.0 * 1024.0));
  }
  if (ceilings.by_threads.size() > 1) {
    out += fmt::format("two threads at once do {:.2f} times the multiply-adds of one: {}\n", ceilings.cores_in_pair,
                       ceilings.two_cores ? "two real cores" : "they share a core, rows of two threads do not count");
  }
  return out;
}

/// Rows that are no timing of a case, but a list of numbers.
bool is_list(const BenchRow& row) { return row.group == "run" || row.group == "sizes" || row.group == "actors"; }

std::string list_text(const BenchRow& row) {
  std::string out = row.name + "\n";
  for (const auto& [key, value] : row.more.items()) {
    out += value.is_number_float() ? fmt::format("  {:<24} {:.4g}\n", key, value.get<double>())
                                   : fmt::format("  {:<24} {}\n", key, value.dump());
  }
  return out;
}

struct Benchmark {
  std::string name;
  std::vector<std::string> options;  // beside --json, which all take
  void (*check)(const BenchArguments&);
  std::vector<BenchRow> (*run)(const BenchArguments&);
};

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> table{
      {"kernels",
       {"--only", "--profile", "--threads", "--batch", "--repetitions", "--quick", "--rows-only"},
       check_kernels,
       bench_kernels},
      {"sampler",
       {"--shape", "--profile", "--threads", "--batch", "--context", "--repetitions", "--quick", "--rows-only"},
       check_sampler,
       bench_sampler},
      {"trainer",
       {"--shape", "--profile", "--threads", "--repetitions", "--quick", "--rows-only"},
       check_trainer,
       bench_trainer},
      {"weights", {"--shape", "--profile", "--repetitions", "--quick", "--rows-only"}, check_weights, bench_weights},
      {"actors", {"--quick"}, check_actors, bench_actors},
      {"run", {"--set"}, check_run, bench_run}};
  return table;
}

const Benchmark& find_benchmark(const std::string& name) {
  std::vector<std::string> names;
  for (const Benchmark& benchmark : benchmarks()) {
    if (benchmark.name == name) return benchmark;
    names.push_back(benchmark.name);
  }
  throw InputError({"motley bench"}, "there is no benchmark '" + name + "'", "allowed: " + join(names, ", "),
                   nearest_name(name, names));
}

/// An option that would do nothing is a mistake, which the figures would not show.
void refuse_unused(const BenchArguments& arguments, const Benchmark& benchmark) {
  const std::string where = "motley bench " + benchmark.name;
  if (benchmark.name != "run" && !(arguments.experiment.empty() && arguments.sets.empty()))
    throw InputError({where}, "an experiment and --set belong to motley bench run");
  const std::pair<const char*, bool> given[] = {{"--only", !arguments.only.empty()},
                                                {"--shape", !arguments.shapes.empty()},
                                                {"--profile", !arguments.profiles.empty()},
                                                {"--threads", !arguments.threads.empty()},
                                                {"--batch", !arguments.batches.empty()},
                                                {"--context", !arguments.contexts.empty()},
                                                {"--repetitions", arguments.repetitions.has_value()},
                                                {"--quick", arguments.quick},
                                                {"--rows-only", arguments.rows_only}};
  for (const auto& [option, is_given] : given) {
    if (!is_given || std::find(benchmark.options.begin(), benchmark.options.end(), option) != benchmark.options.end())
      continue;
    throw InputError({where}, std::string("takes no ") + option,
                     "allowed: " + join(benchmark.options, ", ") + ", --json");
  }
}

}  // namespace

std::string bench_table(const std::vector<BenchRow>& rows, const Ceilings& ceilings) {
  std::string out = ceilings_text(ceilings);
  size_t width = 4;
  for (const BenchRow& row : rows) width = std::max(width, is_list(row) ? 0 : row.name.size());
  std::string group;
  for (const BenchRow& row : rows) {
    if (is_list(row)) {
      out += list_text(row);
      continue;
    }
    if (row.group != group) {
      group = row.group;
      out += fmt::format("\n{:<{}} {:>7} {:>10} {:>20} {:>9} {:>7} {:>9} {:>9}\n", group, width, "threads", "median",
                         "low to high", "GFLOP/s", "GB/s", "roofline", "tokens/s");
    }
    const double seconds = std::max(row.seconds.median, 1e-12);
    const double share = roofline_share(row, ceilings);
    out += fmt::format("{:<{}} {:>7} {:>10} {:>20} {:>9} {:>7} {:>9} {:>9}\n", row.name, width, row.threads,
                       time_text(seconds), time_text(row.seconds.low) + ".." + time_text(row.seconds.high),
                       rate_text(row.flop / seconds * 1e-9), rate_text(row.bytes / seconds * 1e-9),
                       share > 0 ? fmt::format("{:.0f} %", 100 * share) : "-", rate_text(row.tokens / seconds));
  }
  return out;
}

Json bench_json(const std::vector<BenchRow>& rows, const Ceilings& ceilings) {
  Json json{{"machine", machine_json()}, {"build", build_json()}, {"ceilings", ceilings_json(ceilings)}};
  json["rows"] = Json::array();
  for (const BenchRow& row : rows) json["rows"].push_back(row_json(row, ceilings));
  return json;
}

int bench_command(const BenchArguments& given) {
  const Benchmark& benchmark = find_benchmark(given.what);
  refuse_unused(given, benchmark);
  benchmark.check(given);
  BenchArguments arguments = given;
  if (arguments.threads.empty()) arguments.threads = {1};
  const bool model_alone = arguments.rows_only || benchmark.name == "run" || benchmark.name == "actors";
  const Ceilings ceilings = model_alone ? Ceilings{} : measure_ceilings(arguments);
  const std::vector<BenchRow> rows = benchmark.run(arguments);
  if (arguments.json) {
    Json json = bench_json(rows, ceilings);
    json["benchmark"] = benchmark.name;
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::fputs(bench_table(rows, ceilings).c_str(), stdout);
  }
  return 0;
}

}  // namespace motley::app
