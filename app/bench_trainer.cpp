#include <fmt/format.h>

#include <stdexcept>

#include "app/bench.h"
#include "app/input_error.h"

namespace motley::app {
namespace {

using algos::Learner;

/// Forward, cross-entropy on all tokens, backward, AdamW; with the peak of this
/// process's memory.
BenchRow time_step(const BenchArguments& arguments, const BenchShape& shape, const std::string& profile) {
  const int64_t sequences = arguments.quick ? 2 : shape.sequences, length = arguments.quick ? 8 : shape.length;
  const double before = process_bytes("VmRSS");
  TransformerConfig model = shape.config;
  model.max_positions = length;
  Parameters parameters = bench_parameters(model);
  algos::LearnerConfig config;
  config.profile = find_bench_profile(profile);
  config.kv_format = config.profile.kv_cache;
  config.micro_batch_tokens = sequences * length;
  Learner learner(model, parameters, config);
  const auto batch = bench_batch(sequences, length, model.vocabulary);
  BenchCase c;
  c.row.group = "trainer";
  c.row.name = fmt::format("{} {}, {} x {} tokens", shape.name, profile, sequences, length);
  c.row.threads = arguments.threads.front();
  c.row.tokens = static_cast<double>(sequences * length);
  c.call = [&] { learner.supervised_step(batch); };
  const int64_t matrices = parameters.count();
  c.row.flop = 6.0 * static_cast<double>(matrices) * c.row.tokens;
  BenchRow row = run_cases({std::move(c)}, effort_of(arguments)).at(0);
  row.more = {{"shape", shape.name}, {"profile", profile}, {"parameters", parameters.count()}};
  row.more["peak_bytes"] = process_bytes("VmHWM") - before;
  return row;
}

BenchRow row_from(const nlohmann::ordered_json& json) {
  BenchRow row;
  row.group = json.at("group");
  row.name = json.at("name");
  row.threads = json.at("threads");
  row.flop = json.at("flop");
  row.tokens = json.at("tokens");
  row.seconds = {json.at("seconds").at("median"), json.at("seconds").at("low"), json.at("seconds").at("high")};
  for (const char* key : {"shape", "profile", "parameters", "peak_bytes"}) row.more[key] = json.at(key);
  return row;
}

/// Each case in a process of its own, so that its peak memory is its own.
BenchRow time_step_apart(const BenchArguments& arguments, const std::string& shape, const std::string& profile,
                         int64_t threads) {
  std::vector<std::string> words{"bench",       "trainer", "--shape",   shape,
                                 "--profile",   profile,   "--threads", std::to_string(threads),
                                 "--rows-only", "--json"};
  if (arguments.quick) words.push_back("--quick");
  if (arguments.repetitions) words.insert(words.end(), {"--repetitions", std::to_string(*arguments.repetitions)});
  const ChildRun child = run_self(words);
  if (child.code != 0) throw std::runtime_error("the benchmark of " + shape + " in " + profile + " failed");
  return row_from(nlohmann::ordered_json::parse(child.out).at("rows").at(0));
}

}  // namespace

void check_trainer(const BenchArguments& arguments) {
  const std::vector<std::string> trainable{"fp32", "bf16", "fp16"};
  for (const std::string& name : arguments.profiles) {
    if (std::find(trainable.begin(), trainable.end(), name) != trainable.end()) continue;
    throw InputError({"--profile " + name}, "a trainer has no such profile", "allowed: " + join(trainable, ", "),
                     nearest_name(name, trainable));
  }
  for (const std::string& name : arguments.shapes) find_shape(name);
}

std::vector<BenchRow> bench_trainer(const BenchArguments& arguments) {
  std::vector<std::string> shapes = arguments.shapes, profiles = arguments.profiles;
  if (shapes.empty())
    shapes = arguments.quick ? std::vector<std::string>{"1M"} : std::vector<std::string>{"1M", "25M", "135M"};
  if (profiles.empty()) profiles = {"fp32", "bf16"};
  // In this process only where nothing else (the ceilings' arrays) has made a peak.
  if (arguments.rows_only && shapes.size() * profiles.size() * arguments.threads.size() == 1)
    return {time_step(arguments, find_shape(shapes.front()), profiles.front())};
  std::vector<BenchRow> rows;
  for (const int64_t threads : arguments.threads) {
    for (const std::string& shape : shapes) {
      for (const std::string& profile : profiles) rows.push_back(time_step_apart(arguments, shape, profile, threads));
    }
  }
  return rows;
}

}  // namespace motley::app
