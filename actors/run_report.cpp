#include "actors/run_report.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace motley::actors {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double value_or_zero(const algos::Metrics& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? 0.0 : found->second;
}

}  // namespace

RunReport::RunReport(const Experiment& experiment)
    : experiment_(experiment), start_(Clock::now()), entered_(start_), totals_(experiment.samplers.size()) {
  for (auto* counts : {&last_.tokens, &last_.busy_ns, &last_.steps, &last_.rows, &last_.prefill_rows,
                       &last_.shared_rows, &last_.kept_rows, &last_.replicas, &last_.replica_ns})
    counts->resize(experiment.samplers.size());
}

void RunReport::enter(Phase phase) {
  const auto now = Clock::now();
  spent_[static_cast<size_t>(phase_)] += seconds_between(entered_, now);
  phase_ = phase;
  entered_ = now;
}

void RunReport::close_update(algos::Metrics& metrics, const GroupCounters& counters) {
  enter(phase_);
  const double seconds = std::max(1e-9, std::accumulate(std::begin(spent_), std::end(spent_), 0.0));
  metrics["time/update"] = seconds;
  metrics["time/wait"] = spent_[static_cast<size_t>(Phase::wait)];
  metrics["time/train"] = spent_[static_cast<size_t>(Phase::train)];
  metrics["time/eval"] = spent_[static_cast<size_t>(Phase::eval)];
  metrics["time/elapsed"] = seconds_between(start_, entered_);
  std::fill(std::begin(spent_), std::end(spent_), 0.0);
  metrics["time/tokens_per_second"] = 0.0;
  metrics["cost/update"] = 0.0;
  for (size_t g = 0; g < experiment_.samplers.size(); ++g) add_group(g, metrics, counters, seconds);
  add_compute(metrics, seconds);
  updates_ += value_or_zero(metrics, "samples/count") > 0 ? 1 : 0;
  last_ = counters;
}

void RunReport::add_compute(algos::Metrics& metrics, double seconds) {
  const kernels::ComputeUse use = kernels::compute_use();
  const auto share = [&](uint64_t now, uint64_t before, double of) {
    return std::clamp(static_cast<double>(now - before) * 1e-9 / of, 0.0, 1.0);
  };
  const double threads = seconds * kernels::compute_threads();
  metrics["time/compute_share"] = share(use.any, last_use_.any, seconds);
  metrics["time/busy_share"] = share(use.busy, last_use_.busy, threads);
  metrics["time/starved_share"] = share(use.starved, last_use_.starved, threads);
  last_use_ = use;
}

double RunReport::replica_seconds(const GroupCounters& counters, size_t g, Clock::time_point now) {
  return 1e-9 * static_cast<double>(counters.replica_ns[g]) +
         static_cast<double>(counters.replicas[g]) *
             seconds_between(Clock::time_point(std::chrono::nanoseconds(counters.at_ns)), now);
}

void RunReport::add_group(size_t g, algos::Metrics& metrics, const GroupCounters& counters, double seconds) {
  const SamplerGroupOptions& group = experiment_.samplers[g];
  const std::string prefix = "group/" + group.name + "/";
  const auto since = [&](std::vector<uint64_t> GroupCounters::*count) {
    return static_cast<double>((counters.*count)[g] - (last_.*count)[g]);
  };
  const double tokens = since(&GroupCounters::tokens), busy = since(&GroupCounters::busy_ns) * 1e-9;
  Totals& totals = totals_[g];
  // What left between the look and now was counted until now: the next look has it right.
  const double paid = std::max(totals.replica_seconds, replica_seconds(counters, g, entered_));
  const double spent = paid - std::exchange(totals.replica_seconds, paid);
  const double cost = group.price_per_hour * spent / 3600.0;
  metrics[prefix + "time/tokens_per_second"] = tokens / seconds;
  metrics[prefix + "time/replicas"] = spent / seconds;
  if (spent > 0) metrics[prefix + "time/idle_share"] = std::clamp(1.0 - busy / spent, 0.0, 1.0);
  const double steps = since(&GroupCounters::steps), prefill = since(&GroupCounters::prefill_rows);
  const double given = prefill + since(&GroupCounters::shared_rows);
  metrics[prefix + "time/prefill_rows"] = prefill;
  metrics[prefix + "time/kept_rows"] = since(&GroupCounters::kept_rows);
  if (given > 0) metrics[prefix + "time/shared_share"] = 1.0 - prefill / given;
  if (steps > 0) metrics[prefix + "time/rows_per_step"] = since(&GroupCounters::rows) / steps;
  if (tokens > 0) metrics[prefix + "cost/per_million_tokens"] = cost / tokens * 1e6;
  metrics["time/tokens_per_second"] += tokens / seconds;
  metrics["cost/update"] += cost;

  const double samples = value_or_zero(metrics, prefix + "share") * value_or_zero(metrics, "samples/count");
  totals.samples += samples;
  totals.kl += samples * value_or_zero(metrics, prefix + "kl/sampler_trainer");
  totals.outside += samples * value_or_zero(metrics, prefix + "ratio/outside");
  totals.staleness += samples * value_or_zero(metrics, prefix + "staleness/mean");
}

RunSummary RunReport::summary() const {
  RunSummary summary;
  const auto now = Clock::now();
  summary.seconds = seconds_between(start_, now);
  double all = 0;
  for (const Totals& totals : totals_) all += totals.samples;
  for (size_t g = 0; g < totals_.size(); ++g) {
    const SamplerGroupOptions& options = experiment_.samplers[g];
    const kernels::NumericProfile profile = experiment_.group_profile(options);
    const Totals& totals = totals_[g];
    const double samples = std::max(1e-9, totals.samples);
    GroupSummary group;
    group.name = options.name;
    group.profile = options.profile;
    group.hardware = profile.hardware;
    group.emulated = !profile.hardware.empty() || options.device == "emulated";  // none runs an accelerator's own units
    group.share = all > 0 ? totals.samples / all : 0.0;
    group.kl = totals.kl / samples;
    group.outside = totals.outside / samples;
    group.staleness = totals.staleness / samples;
    group.tokens_per_second = static_cast<double>(last_.tokens[g]) / std::max(1e-9, summary.seconds);
    group.cost = options.price_per_hour * replica_seconds(last_, g, now) / 3600.0;
    const auto tokens = static_cast<double>(last_.tokens[g]);
    if (tokens > 0) group.cost_per_million_tokens = group.cost / tokens * 1e6;
    summary.cost_per_update += group.cost / static_cast<double>(std::max<int64_t>(1, updates_));
    summary.groups.push_back(group);
  }
  return summary;
}

}  // namespace motley::actors
