// A task whose episodes act between replies, without a sandbox: "1=" is asked until the reply has begun with "2" twice
// (submitted, reward 1) or four replies are used up (turn_limit, reward 0.25 for each good one). What goes wrong, a
// test chooses.
#pragma once

#include <atomic>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <thread>

#include "envs/interaction.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {

enum class Fault : uint8_t {
  none,
  over_at_once,     // no fault: there is nothing to do
  throws_at_birth,  // and so on
  throws_in_begin,
  throws_in_reply,
  rewrites,  // what was read already
  claims,    // that what is read was drawn
  asks_for_nothing,
  reads_no_token,  // but an id outside the vocabulary
  throws_in_score,
  reward_is_nan,
  part_is_infinite,
  turns_do_not_fit,
  ending_is_no_word,
  says_it_failed,
  hangs,
};

struct Faults {
  std::function<Fault(int64_t episode)> choose;  // by the number of episodes before; not asked when evaluating
  std::chrono::milliseconds hang{0};
  std::string lacking;  // not empty: what the machine has not
  std::atomic<int64_t> episodes{0}, alive{0};
};

class FakeInteraction final : public envs::Interaction {
 public:
  FakeInteraction(Faults& faults, Fault fault, const envs::Tokenizer& tokenizer)
      : faults_(faults), fault_(fault), tokenizer_(tokenizer) {
    if (fault_ == Fault::throws_at_birth) throw std::runtime_error("no room for a sandbox");
    ++faults_.alive;
  }
  ~FakeInteraction() override { --faults_.alive; }
  FakeInteraction(const FakeInteraction&) = delete;
  FakeInteraction& operator=(const FakeInteraction&) = delete;

  std::optional<int64_t> begin() override {
    if (fault_ == Fault::throws_in_begin) throw std::runtime_error("nothing begins");
    if (fault_ == Fault::over_at_once) return std::nullopt;
    read("1=");
    if (fault_ == Fault::reads_no_token) context_.push_back(1 << 20), drawn_.push_back(0);
    return fault_ == Fault::asks_for_nothing ? 0 : 3;
  }
  std::optional<int64_t> replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) override {
    if (!std::equal(prompt.begin(), prompt.end(), context_.begin(), context_.end()))
      throw std::logic_error("another prompt");
    if (fault_ == Fault::throws_in_reply) throw std::runtime_error("the shell is gone");
    if (fault_ == Fault::hangs) std::this_thread::sleep_for(faults_.hang);
    context_.insert(context_.end(), reply.begin(), reply.end());
    drawn_.resize(context_.size(), 1);
    const bool good = tokenizer_.decode(reply.first(1)) == "2";
    good ? ++good_ : ++errors_;
    if (fault_ == Fault::rewrites) context_[0] ^= 1;
    if (++replies_ == 4 || good_ == 2) return std::nullopt;
    read("1=");
    if (fault_ == Fault::claims) drawn_.back() = 1;
    return 1000;  // more than the model allows
  }
  const std::vector<int32_t>& context() const override { return context_; }
  const std::vector<uint8_t>& drawn() const override { return drawn_; }
  envs::InteractionOutcome outcome() override {
    envs::InteractionOutcome outcome;
    outcome.end = good_ == 2 ? "submitted" : "turn_limit";
    outcome.truncated = good_ < 2;
    outcome.format_errors = errors_;
    outcome.reward.value = good_ == 2 ? 1.0 : 0.25 * static_cast<double>(good_);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (fault_ == Fault::over_at_once) outcome.end = "nothing_to_do";
    if (fault_ == Fault::throws_in_score) throw std::runtime_error("the scorer broke");
    if (fault_ == Fault::reward_is_nan) outcome.reward.value = std::numeric_limits<double>::quiet_NaN();
    if (fault_ == Fault::part_is_infinite) outcome.reward.parts["tests"] = kInfinity;
    if (fault_ == Fault::turns_do_not_fit) outcome.reward.turns.assign(static_cast<size_t>(replies_) + 1, 0.0);
    if (fault_ == Fault::ending_is_no_word) outcome.end = "the/end";
    if (fault_ == Fault::says_it_failed) outcome.failure = "the tests could not run";
    return outcome;
  }

 private:
  void read(std::string_view text) {
    for (const int32_t token : tokenizer_.encode(text)) context_.push_back(token);
    drawn_.resize(context_.size(), 0);
  }
  Faults& faults_;
  Fault fault_;
  const envs::Tokenizer& tokenizer_;
  std::vector<int32_t> context_;
  std::vector<uint8_t> drawn_;
  int64_t replies_ = 0, good_ = 0, errors_ = 0;
};

class InteractingTask final : public envs::Task {
 public:
  explicit InteractingTask(std::shared_ptr<Faults> faults) : faults_(std::move(faults)) {}
  std::vector<std::string> symbols() const override { return {"1", "2", "="}; }
  envs::Problem problem(uint64_t, uint64_t, bool held_out) const override {
    return {held_out ? "1=" : "what no symbol of its spells", held_out ? "held out" : "training", ""};
  }
  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  envs::Reward reward(const envs::Problem&, std::string_view, bool) const override { return {}; }
  bool has_demonstrations() const override { return false; }
  void require() const override {
    if (!faults_->lacking.empty()) throw envs::TaskError(faults_->lacking);
  }
  bool interacts() const override { return true; }
  std::unique_ptr<envs::Interaction> interact(const envs::Problem& problem, const envs::Tokenizer& tokenizer,
                                              const envs::InteractionLimits&) const override {
    Fault fault = Fault::none;
    if (problem.answer == "training" && faults_->choose) fault = faults_->choose(faults_->episodes++);
    return std::make_unique<FakeInteraction>(*faults_, fault, tokenizer);
  }

 private:
  std::shared_ptr<Faults> faults_;
};

/// Makes it the experiment's only task, under a name of its own.
inline std::shared_ptr<Faults> use_interacting_task(Experiment& experiment, const std::string& name) {
  auto faults = std::make_shared<Faults>();
  envs::register_task(
      {name, "of a test", {}, [faults](const envs::Options&) { return std::make_unique<InteractingTask>(faults); }});
  experiment.tasks = {{.env = name, .weight = 1.0, .options = {}}};
  return faults;
}

}  // namespace motley::actors
