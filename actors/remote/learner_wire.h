// What a run and a learner in another process tell each other: the bodies of their frames, and the tensors that follow
// these in parts. The frames' order is in actors/remote/remote_trainer.h. Bytes from the network are untrusted, as in
// actors/remote/wire.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "actors/remote/peer_line.h"
#include "actors/trainer.h"

namespace motley::actors {

/// What a trainer goes on from.
struct TrainingState {
  uint64_t version = 0;
  Trainer::State state;
  std::shared_ptr<const Parameters> reference;  // of a KL term; null: none, or none that is sent
};

struct TensorHead {
  std::string name;  // weights/..., adam.first/..., adam.second/..., history.<age>/..., reference/...
  Shape shape;
};
/// Frames `start` and `state`; the tensors' float32 values follow in this order, little endian.
struct StateHead {
  uint64_t version = 0;
  std::map<std::string, double> numbers;       // AdamW::State
  std::map<std::string, std::string> learner;  // Learner::state()
  std::vector<TensorHead> tensors;
};
/// Frame `batch`; so many bytes follow, of trajectories_to_bytes.
struct BatchHead {
  uint64_t update = 0, bytes = 0;
};
/// Frame `trained`; the weights follow, in the order of Parameters::layout.
struct TrainedHead {
  uint64_t update = 0;
  algos::Metrics metrics;
};

std::string state_body(const StateHead& head);
std::string batch_body(const BatchHead& head);
std::string trained_body(const TrainedHead& head);
std::string version_body(uint64_t version);
/// Each throws WireError.
StateHead parse_state(std::string_view body);
BatchHead parse_batch(std::string_view body);
TrainedHead parse_trained(std::string_view body);
uint64_t parse_version(std::string_view body);

/// Names and shapes are those of the model, each there once, the reference and at most `history` past weights besides:
/// throws WireError.
void check_tensors(const StateHead& head, const TransformerConfig& model, size_t history);

/// In the order of Parameters::layout.
void write_weights(PeerLine& line, const Parameters& weights);
std::shared_ptr<const Parameters> read_weights(PeerLine& line, const TransformerConfig& model);

/// Each sends or reads a head and all that follows it.
void send_state(PeerLine& line, FrameKind kind, const TrainingState& state);
TrainingState read_state(PeerLine& line, std::string_view body, const TransformerConfig& model, size_t history);
void send_trained(PeerLine& line, uint64_t update, const Trainer::Trained& trained);
/// Throws WireError for another update, too.
Trainer::Trained read_trained(PeerLine& line, std::string_view body, const TransformerConfig& model, uint64_t update);

}  // namespace motley::actors
