// `motley bench`: what its parts share. A case is something to time with what
// it computes and reads; cases of one group take turns, so that a machine that
// slows down slows all of them. Timings are reported, never judged.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "algos/learner.h"
#include "app/commands.h"
#include "kernels/profile.h"
#include "tensor/transformer.h"

namespace motley::app {

/// Of the repetitions of one case.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> values);

struct BenchRow {
  std::string group, name;
  int64_t threads = 1;
  double flop = 0,
         bytes = 0;   // of one call; bytes as stored, each read or written once
  double tokens = 0;  // of one call; 0: no rate of tokens is told
  Spread seconds;     // of one call
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  // further numbers and names, by key
};
struct BenchCase {
  BenchRow row;
  std::function<void()> call;
  std::function<double()> timed;  // instead of `call`: does what one repetition
                                  // needs, gives the seconds of one call
};

struct Effort {
  double seconds = 0.03;  // least time of one repetition
  int repetitions = 7;
};
Effort effort_of(const BenchArguments& arguments);
/// Times the cases in turns and gives their rows; says on stderr what it is at.
/// Sets the compute threads of each row.
std::vector<BenchRow> run_cases(std::vector<BenchCase> cases, const Effort& effort);
double seconds_now();

/// The best that this machine does, with `threads` threads at once.
struct Ceiling {
  int64_t threads = 1;
  double flops = 0, bytes_per_second = 0;
};
struct Ceilings {
  std::vector<Ceiling> by_threads;  // one thread, and two where there are two
  double footprint = 0;             // bytes that were read
  double cores_in_pair = 0;         // multiply-adds of two threads at once, over those of one
  bool two_cores = false;           // the two threads are two real cores
};
Ceilings measure_ceilings(const BenchArguments& arguments);
/// Bytes of the last-level cache as the system tells them; 0: unknown.
double last_level_cache();
/// More than the last-level cache holds, and at least 128 MiB: what weights are
/// cycled through.
double cold_footprint(const BenchArguments& arguments);
/// The share of the roofline (the smaller of what both ceilings allow) that a
/// row reaches; 0 if its threads were not measured or it says nothing about its
/// work.
double roofline_share(const BenchRow& row, const Ceilings& ceilings);

struct BenchShape {
  std::string name;
  TransformerConfig config;              // resolved
  int64_t sequences = 16, length = 128;  // of a training step
};
const std::vector<BenchShape>& bench_shapes();
/// Throws InputError with the nearest name.
const BenchShape& find_shape(const std::string& name);
const kernels::NumericProfile& find_bench_profile(const std::string& name);
/// Reproducible weights of the size that training starts from.
Parameters bench_parameters(const TransformerConfig& config);
/// Sequences of random ids, all of whose tokens but the first are trained on.
std::vector<algos::Learner::Demonstration> bench_batch(int64_t sequences, int64_t length, int64_t vocabulary);
/// A line of /proc/self/status, as "VmRSS", in bytes; 0 if it is not there.
double process_bytes(const std::string& key);

/// The cases of each kind of kernel (`--only`), in the order in which they run.
using CaseMaker = std::function<std::vector<BenchCase>(const BenchArguments&)>;
const std::vector<std::pair<std::string, CaseMaker>>& kernel_groups();
std::vector<BenchCase> product_cases(const BenchArguments& arguments);

/// Throw InputError for what cannot be measured, before anything takes time.
void check_kernels(const BenchArguments& arguments);
void check_sampler(const BenchArguments& arguments);
void check_trainer(const BenchArguments& arguments);
void check_weights(const BenchArguments& arguments);
void check_actors(const BenchArguments& arguments);
void check_run(const BenchArguments& arguments);
std::vector<BenchRow> bench_kernels(const BenchArguments& arguments);
std::vector<BenchRow> bench_sampler(const BenchArguments& arguments);
std::vector<BenchRow> bench_trainer(const BenchArguments& arguments);
std::vector<BenchRow> bench_weights(const BenchArguments& arguments);
std::vector<BenchRow> bench_actors(const BenchArguments& arguments);
std::vector<BenchRow> bench_run(const BenchArguments& arguments);

/// This binary as a process of its own: its stdout, and what the system says it
/// used. A signal that would end this process (Ctrl-C) ends that one instead, and
/// throws here, so that what it left can be removed.
struct ChildRun {
  int code = -1;
  std::string out;
  double seconds = 0, core_seconds = 0, peak_bytes = 0;
};
ChildRun run_self(const std::vector<std::string>& arguments);

std::string bench_table(const std::vector<BenchRow>& rows, const Ceilings& ceilings);
nlohmann::ordered_json bench_json(const std::vector<BenchRow>& rows, const Ceilings& ceilings);

}  // namespace motley::app
