#include "actors/remote/remote_trainer.h"

#include "actors/local_trainer.h"
#include "actors/policy/learner_state.h"
#include "actors/trajectory_file.h"
#include "actors/weight_history.h"

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kSeatPoll{100};
constexpr size_t kMostUnsaved = 20;      // updates, which a new learner would have to do again
constexpr int kMostLearnerFailures = 3;  // in a row, without an update

uint64_t weights_digest(const Parameters& parameters) {
  uint64_t digest = 0;
  for (const auto& [name, value] : parameters.fingerprints()) digest = kernels::mix(digest, value);
  return digest;
}

/// The state before the first step, which needs no learner.
TrainingState first_state(const Experiment& experiment, const TransformerConfig& model, StartingPoint& start,
                          ParametersPtr weights) {
  algos::Learner learner(model, start.parameters, experiment.learner_config());
  if (start.optimizer) learner.optimizer().restore(*start.optimizer);
  start.optimizer.reset();
  learner.restore(learner_state(start.state));
  TrainingState state{
      start.state.version, {learner.optimizer().state(), learner.state(), std::move(weights)}, start.reference};
  add_history(state.state.optimizer, start.history);
  return state;
}

}  // namespace

RemoteTrainer::RemoteTrainer(const Experiment& experiment, const TransformerConfig& model, StartingPoint& start,
                             ParametersPtr weights, std::shared_ptr<LearnerSeat> seat, RemoteTrainerOptions options)
    : model_(model),
      history_length_(history_length(experiment)),
      seat_(std::move(seat)),
      options_(std::move(options)),
      kept_(first_state(experiment, model, start, std::move(weights))) {}

template <class Work>
auto RemoteTrainer::with_learner(const Work& work) -> decltype(work()) {
  for (;;) {
    wait_for_learner();
    try {
      return work();
    } catch (const LineClosed&) {  // the gate has said why
    } catch (const WireError& error) {
      line_->close_with_cause(std::string("what it sent is not right: ") + error.what());
    } catch (const std::bad_alloc&) {
      line_->close_with_cause("no memory for what it sent");
    }
    seat_->leave(line_.get());
    line_.reset();
  }
}

void RemoteTrainer::wait_for_learner() {
  const auto since = std::chrono::steady_clock::now();
  for (bool told = false; !line_ || line_->is_closed();) {
    if (line_) seat_->leave(line_.get());
    reached_.reset();
    if (options_.stopping()) throw TrainerGone("the run stops while no learner is there");
    if (std::chrono::steady_clock::now() - since > options_.patience)
      throw TrainerGone("no learner has come for " + std::to_string(options_.patience.count() / 1000) +
                        " s (run.learner_patience)");
    line_ = seat_->wait(kSeatPoll);
    if (!line_ && !std::exchange(told, true))
      options_.say("no learner is there: update " + std::to_string(newest()) + " waits for one");
  }
}

std::string RemoteTrainer::answer(FrameKind kind) {
  auto [came, body] = line_->next();
  if (came == kind) return std::move(body);
  if (came != FrameKind::failed)
    throw WireError("a frame of kind " + std::to_string(static_cast<int>(came)) + ", which nobody asked for");
  const std::string cause = parse_text(body);
  line_->close_with_cause("it failed: " + cause);
  if (++failures_ < kMostLearnerFailures) throw LineClosed(cause);
  throw TrainerGone("learners have failed " + std::to_string(failures_) + " times in a row at update " +
                    std::to_string(newest()) + ", last: " + cause);
}

Trainer::Trained RemoteTrainer::train(uint64_t update) {
  Batch& batch = batches_.at(update - kept_.version - 1);
  line_->send(FrameKind::batch, batch_body({update, batch.bytes.size()}));
  line_->write(batch.bytes);
  line_->flush();
  Trained trained = read_trained(*line_, answer(FrameKind::trained), model_, update);
  reached_ = update;
  const uint64_t digest = weights_digest(*trained.weights);
  if (batch.digest.value_or(digest) != digest && !std::exchange(told_difference_, true))
    options_.say(
        "the new learner does not compute what the one before it did (another device?): the weights of update " +
        std::to_string(update) + " differ from those published; the run goes on with the new ones");
  batch.digest = digest;
  return trained;
}

std::optional<Trainer::Trained> RemoteTrainer::catch_up() {
  if (!reached_) send_state(*line_, FrameKind::start, kept_);
  reached_ = reached_.value_or(kept_.version);
  std::optional<Trained> trained;
  while (*reached_ < newest()) trained = train(*reached_ + 1);
  return trained;
}

Trainer::Trained RemoteTrainer::step(const std::vector<algos::Trajectory>& batch) {
  batches_.push_back({trajectories_to_bytes(static_cast<int64_t>(newest() + 1), batch), std::nullopt});
  Trained trained = with_learner([&] { return catch_up(); }).value();
  failures_ = 0;
  return trained;
}

Trainer::State RemoteTrainer::state() {
  if (batches_.empty()) return kept_.state;
  TrainingState state = with_learner([&] {
    catch_up();
    line_->send(FrameKind::save);
    TrainingState got = read_state(*line_, answer(FrameKind::state), model_, history_length_);
    if (got.version != newest()) throw WireError("a state of version " + std::to_string(got.version));
    return got;
  });
  state.reference = kept_.reference;
  kept_ = std::move(state);
  batches_.clear();
  return kept_.state;
}

bool RemoteTrainer::wants_saving() const { return batches_.size() >= kMostUnsaved; }

void RemoteTrainer::release() {
  if (!line_) line_ = seat_->wait(std::chrono::milliseconds(0));  // it has not been needed yet
  if (!line_) return;
  try {
    line_->send(FrameKind::release);
  } catch (const LineClosed&) {
  }
  seat_->leave(line_.get());
  line_.reset();
}

}  // namespace motley::actors
