#include "tests/fleet/accounts.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/checkpoint.h"
#include "actors/policy/losses.h"
#include "actors/policy/prompt_ledger.h"
#include "actors/trajectory_file.h"

namespace motley::fleet {
namespace {

namespace fs = std::filesystem;
using actors::Checkpoint;

constexpr size_t kMostFaults = 20;

class Audit {
 public:
  Audit(const fs::path& run, int64_t group_size) : run_(run), group_size_(group_size) {}

  Accounts take() {
    const Checkpoint checkpoint = actors::load_checkpoint(actors::find_checkpoint(run_));
    if (!checkpoint.state) throw std::runtime_error("the checkpoint has no state");
    accounts_.updates = static_cast<int64_t>(checkpoint.state->version);
    for (int64_t update = 1; update <= accounts_.updates; ++update) read(update, checkpoint.config.vocabulary);
    compare_prompts(*checkpoint.state);
    compare_rows();
    return std::move(accounts_);
  }

 private:
  void fault(const std::string& text) {
    if (accounts_.faults.size() < kMostFaults) accounts_.faults.push_back(text);
  }

  void read(int64_t update, int64_t vocabulary) {
    const std::string where = "update " + std::to_string(update) + ": ";
    std::map<uint64_t, std::set<uint32_t>> groups;
    bool elsewhere = false;
    for (const algos::Trajectory& sample :
         actors::read_trajectories(actors::trajectory_path(run_, update), vocabulary)) {
      const std::string name = where + "sample " + std::to_string(sample.group) + "/" + std::to_string(sample.sample);
      ++accounts_.samples;
      ++accounts_.by_group[sample.sampler];
      accounts_.failed += sample.failure.empty() ? 0 : 1;
      accounts_.moved += sample.attempt % actors::kMaxLosses == 0 ? 0 : 1;
      if (!groups[sample.group].insert(sample.sample).second) fault(name + " is twice in it");
      if (sample.batch_version + 1 != static_cast<uint64_t>(update) && !std::exchange(elsewhere, true))
        fault(name + " was taken at another version");
      for (const uint64_t version : sample.records.versions)
        if (version > sample.batch_version) fault(name + " has a token of a later version");
    }
    for (const auto& [group, samples] : groups) {
      if (!prompts_.insert(group).second) fault(where + "prompt " + std::to_string(group) + " was in an update before");
      if (static_cast<int64_t>(samples.size()) != group_size_)
        fault(where + "prompt " + std::to_string(group) + " has " + std::to_string(samples.size()) + " samples");
    }
  }

  void compare_prompts(const actors::RunState& state) {
    std::set<uint64_t> again;
    if (const auto found = state.extra.find(actors::kUnfinished); found != state.extra.end())
      for (const uint64_t prompt : actors::numbers_from_text(found->second)) again.insert(prompt);
    for (uint64_t prompt = 0; prompt < state.next_prompt; ++prompt)
      if (prompts_.contains(prompt) == again.contains(prompt))
        fault("prompt " + std::to_string(prompt) +
              (again.contains(prompt) ? " is in an update, and would be issued again" : " is lost"));
    if (!prompts_.empty() && *prompts_.rbegin() >= state.next_prompt) fault("a prompt is beyond the checkpoint's next");
  }

  void compare_rows() {
    const std::vector<double> rows = metric(run_, "update");
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i] != static_cast<double>(i)) {
        fault("row " + std::to_string(i) + " of metrics.jsonl is update " + std::to_string(rows[i]));
        break;
      }
    if (static_cast<int64_t>(rows.size()) != accounts_.updates + 1)
      fault(std::to_string(rows.size()) + " rows in metrics.jsonl for updates 0 to " +
            std::to_string(accounts_.updates));
    double failed = 0;
    for (const double count : metric(run_, "samples/failed")) failed += count;
    if (failed != static_cast<double>(accounts_.failed))
      fault("samples/failed counts " + std::to_string(failed) + ", the files have " + std::to_string(accounts_.failed));
  }

  const fs::path run_;
  const int64_t group_size_;
  std::set<uint64_t> prompts_;
  Accounts accounts_;
};

}  // namespace

Accounts take_accounts(const fs::path& run, int64_t group_size) { return Audit(run, group_size).take(); }

std::vector<double> metric(const fs::path& run, const std::string& name) {
  std::vector<double> values;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_discarded() && row.contains(name)) values.push_back(row[name].get<double>());
  }
  return values;
}

}  // namespace motley::fleet
