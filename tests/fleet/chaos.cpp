#include "tests/fleet/chaos.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "tests/fleet/chaos_schedule.h"
#include "tests/fleet/fleet_run.h"
#include "tests/fleet/process_facts.h"

namespace motley::fleet {
namespace {

using Kind = Disturbance::Kind;
constexpr Seconds kStartLimit{60}, kEndLimit{60}, kReconnectionLimit{30};
constexpr double kReportEvery = 10, kLookEvery = 0.5;  // seconds

std::string group_of(int sampler) { return std::string(1, static_cast<char>('a' + sampler % 3)); }

class Chaos {
 public:
  Chaos(const ChaosOptions& options, std::ostream& out) : options_(options), out_(out), site_(options.samplers) {}

  ChaosResult play() {
    site_.folder().write("x.toml", small_experiment());
    begin();
    const std::vector<Disturbance> schedule =
        chaos_schedule(options_.seed, options_.seconds, options_.samplers, options_.lost_after);
    say("seed " + std::to_string(options_.seed) + ": " + std::to_string(schedule.size()) + " disturbances");
    start_ = Clock::now();
    for (const Disturbance& each : schedule) {
      pass_until(each.at);
      say(describe(each));
      disturb(each);
      undoing_.emplace(each.at + each.seconds, each);
    }
    pass_until(options_.seconds);
    finish();
    return std::move(result_);
  }

 private:
  void say(const std::string& text) { out_ << text << std::endl; }
  void fault(const std::string& text) {
    say("FAULT: " + text);
    if (result_.faults.size() < 20) result_.faults.push_back(text);
  }
  double now() const { return since(start_).count(); }
  Program& sampler(int index) { return *samplers_.at(static_cast<size_t>(index)); }
  BadNetwork& relay(int index) { return *relays_.at(static_cast<size_t>(index)); }

  void begin() {
    samplers_.resize(static_cast<size_t>(options_.samplers));
    for (int i = 0; i < options_.samplers; ++i) relays_.push_back(site_.start_relay("relay" + std::to_string(i), i));
    // Updates of some tens of milliseconds: ten minutes of them are no flood of files.
    run_ = site_.start_run("run0", {"x.toml", "--set", "model.width=256", "--set", "model.layers=4", "--set",
                                    "run.lost_after=" + std::to_string(options_.lost_after)});
    for (int i = 0; i < options_.samplers; ++i) start_sampler(i);
    wait_for_updates(*run_, 25, kStartLimit);  // there is a checkpoint to come back to
  }

  void start_sampler(int index) {
    samplers_.at(static_cast<size_t>(index)) =
        site_.start_sampler("sampler" + std::to_string(index) + "-" + std::to_string(started_++), index,
                            group_of(index), "127.0.0.1:" + std::to_string(Site::kPort), 600);
  }

  void disturb(const Disturbance& each) {
    switch (each.kind) {
      case Kind::kill:
        return end_sampler(each.sampler, SIGKILL, 128 + SIGKILL);
      case Kind::leave:
        return end_sampler(each.sampler, SIGINT, 0);
      case Kind::stop:
        return sampler(each.sampler).signal(SIGSTOP);
      case Kind::unplug:
        return site_.network().unplug(Site::sampler_machine(each.sampler));
      case Kind::relay:
        relay(each.sampler).command(each.command);
        return;
      case Kind::restart:
        count_log();
        run_->signal(SIGKILL);
        run_->wait(kEndLimit);
        run_gone_ = true;
        ++result_.restarts;
    }
  }

  void undo(const Disturbance& each) {
    switch (each.kind) {
      case Kind::kill:
      case Kind::leave:
        return start_sampler(each.sampler);
      case Kind::stop:
        return sampler(each.sampler).signal(SIGCONT);
      case Kind::unplug:
        return site_.network().plug(Site::sampler_machine(each.sampler));
      case Kind::relay:
        relay(each.sampler).command("clear");
        return;
      case Kind::restart:
        run_ = site_.start_run("run" + std::to_string(result_.restarts), {"--resume", "runs/small-0"});
        run_gone_ = false;
        resumed_ = Clock::now();
        full_descriptors_ = full_bytes_ = 0;
    }
  }

  void end_sampler(int index, int signal, int expected) {
    Program& program = sampler(index);
    program.signal(signal);
    const int code = program.wait(kEndLimit);
    if (code != expected)
      fault("sampler " + std::to_string(index) + " ended with " + std::to_string(code) + ", not " +
            std::to_string(expected) + ": " + program.log_end());
    ended_.insert(index);
  }

  /// Undoes what is due, and looks at everybody, until the time.
  void pass_until(double end) {
    for (;;) {
      const double next = undoing_.empty() ? end : std::min(end, undoing_.begin()->first);
      while (now() < next) {
        look();
        std::this_thread::sleep_for(Seconds(std::clamp(next - now(), 0.0, kLookEvery)));
      }
      if (undoing_.empty() || undoing_.begin()->first > end) return;
      const Disturbance due = undoing_.begin()->second;
      undoing_.erase(undoing_.begin());
      ended_.erase(due.kind == Kind::kill || due.kind == Kind::leave ? due.sampler : -1);
      undo(due);
    }
  }

  void look() {
    if (!run_gone_ && !run_->running()) throw std::runtime_error("the run has ended: " + run_->log_end());
    for (int i = 0; i < options_.samplers; ++i) {
      if (ended_.contains(i) || sampler(i).running()) continue;
      fault("sampler " + std::to_string(i) + " ended by itself with " + std::to_string(sampler(i).wait(kEndLimit)) +
            ": " + sampler(i).log_end());
      start_sampler(i);
    }
    if (resumed_ && (run_->log().find(" joins") != std::string::npos || since(*resumed_) > kReconnectionLimit)) {
      const double took = since(*resumed_).count();
      say("        the first sampler was back after " + std::to_string(took) + " s");
      if (Seconds(took) > kReconnectionLimit) fault("no sampler came back to the resumed run");
      result_.longest_reconnection = std::max(result_.longest_reconnection, took);
      resumed_.reset();
    }
    if (now() < report_at_ || run_gone_) return;
    report_at_ = now() + kReportEvery;
    const int64_t descriptors = open_descriptors(run_->pid()), bytes = resident_bytes(run_->pid());
    if (full_descriptors_ == 0 && present() == options_.samplers) full_descriptors_ = descriptors, full_bytes_ = bytes;
    char line[160];
    std::snprintf(line, sizeof line, "%6.1f s  update %lld, %d of %d samplers, %lld descriptors, %.1f MB", now(),
                  static_cast<long long>(updates_of(run_->log_end())), present(), options_.samplers,
                  static_cast<long long>(descriptors), static_cast<double>(bytes) * 1e-6);
    say(line);
  }

  /// Samplers in the run, as its log tells.
  int present() const {
    const std::string log = run_->log();
    return occurrences(log, " joins") - occurrences(log, " was lost") - occurrences(log, " left;");
  }
  void count_log() {
    const std::string log = run_->log();
    result_.joins += occurrences(log, " joins");
    result_.losses += occurrences(log, " was lost");
  }

  void finish() {
    say("the end of the disturbances");
    if (!wait_until(kEndLimit, [&] { return present() == options_.samplers; }))
      fault(std::to_string(present()) + " of " + std::to_string(options_.samplers) + " samplers are back");
    try {
      wait_for_updates(*run_, 20, kEndLimit);
    } catch (const std::exception& error) {
      fault(error.what());
    }
    if (full_descriptors_ > 0) {
      result_.descriptors_grown = open_descriptors(run_->pid()) - full_descriptors_;
      result_.bytes_grown = resident_bytes(run_->pid()) - full_bytes_;
    }
    count_log();
    if (const int code = interrupt(*run_, kEndLimit); code != 0)
      fault("the run ended with " + std::to_string(code) + ": " + run_->log_end());
    for (int i = 0; i < options_.samplers; ++i) end_sampler(i, SIGINT, 0);
    relays_.clear();
    if (!wait_until(Seconds(5), [&] { return inhabitants(site_.network().identity()) == 0; }))
      fault("a process is left on one of the machines");
    result_.accounts = take_accounts(site_.folder() / "runs/small-0", kGroupSize);
  }

  const ChaosOptions options_;
  std::ostream& out_;
  const Site site_;
  Clock::time_point start_;
  std::vector<std::unique_ptr<BadNetwork>> relays_;
  std::unique_ptr<Program> run_;
  std::vector<std::unique_ptr<Program>> samplers_;
  std::multimap<double, Disturbance> undoing_;  // by when
  std::set<int> ended_;                         // samplers that were told to end
  bool run_gone_ = false;
  std::optional<Clock::time_point> resumed_;  // the run, and no sampler is back yet
  int started_ = 0;
  double report_at_ = 0;
  int64_t full_descriptors_ = 0, full_bytes_ = 0;  // of the run's life, when all samplers were in it
  ChaosResult result_;
};

}  // namespace

ChaosResult run_chaos(const ChaosOptions& options, std::ostream& out) { return Chaos(options, out).play(); }

}  // namespace motley::fleet
