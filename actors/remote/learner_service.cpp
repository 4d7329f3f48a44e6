#include "actors/remote/learner_service.h"

#include "actors/local_trainer.h"
#include "actors/policy/learner_state.h"
#include "actors/trajectory_file.h"
#include "actors/weight_history.h"

namespace motley::actors {
namespace {

class LearnerService {
 public:
  LearnerService(PeerLine& line, const Experiment& experiment, const TransformerConfig& model)
      : line_(line), experiment_(experiment), model_(model) {}

  void start(std::string_view body) {
    TrainingState state = read_state(line_, body, model_, history_length(experiment_));
    auto start = std::make_shared<StartingPoint>();
    const Device device = kernels::parse_device(experiment_.trainer.device);
    start->parameters = state.state.weights->clone(device);
    start->state.version = version_ = state.version;
    add_learner_state(start->state, state.state.learner);
    start->history = take_history(state.state.optimizer, model_);
    start->optimizer = std::move(state.state.optimizer);
    start->reference = std::move(state.reference);
    trainer_ = std::make_unique<LocalTrainer>(experiment_, model_, start, state.state.weights);
  }

  void train(std::string_view body) {
    const BatchHead head = parse_batch(body);
    if (!trainer_ || head.update != version_ + 1) throw WireError("a batch of update " + std::to_string(head.update));
    std::string bytes;  // grows with what really comes
    while (bytes.size() < head.bytes) {
      const size_t here = bytes.size(), next = std::min<size_t>(kPartBytes, head.bytes - here);
      bytes.resize(here + next);
      line_.read(bytes.data() + here, next);
    }
    line_.end_parts();
    const Trainer::Trained trained = trainer_->step(trajectories_from_bytes(bytes, model_.vocabulary));
    version_ = head.update;
    send_trained(line_, version_, trained);
  }

  void save() {
    if (!trainer_) throw WireError("a state is asked for, and there is none");
    send_state(line_, FrameKind::state, {version_, trainer_->state(), nullptr});
  }

 private:
  PeerLine& line_;
  const Experiment& experiment_;
  const TransformerConfig& model_;
  std::unique_ptr<LocalTrainer> trainer_;
  uint64_t version_ = 0;
};

}  // namespace

void serve_run(PeerLine& line, const Experiment& experiment, const TransformerConfig& model,
               const std::function<void()>& served) {
  LearnerService service(line, experiment, model);
  try {
    for (;;) {
      const auto [kind, body] = line.next();
      switch (kind) {
        case FrameKind::start:
          service.start(body);
          break;
        case FrameKind::batch:
          service.train(body);
          served();
          break;
        case FrameKind::save:
          service.save();
          break;
        case FrameKind::release:
          return;
        default:
          throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) +
                          ", which runs do not send to learners");
      }
    }
  } catch (const LineClosed&) {
    throw;
  } catch (const std::exception& error) {
    line.send(FrameKind::failed, text_body(error.what()));
    throw;
  }
}

}  // namespace motley::actors
