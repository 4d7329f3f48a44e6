// What a run and an evaluator in another process tell each other.
//
// evaluator -> run: ready, the digests of its tasks (actors/remote/work_wire.h). Then any number of: evaluate ->
// evaluated, the weights behind the first as behind `trained`. Bytes from the network are untrusted, as in
// actors/remote/wire.h.
#pragma once

#include <string>
#include <string_view>

#include "actors/remote/learner_wire.h"

namespace motley::actors {

/// Frame `evaluate`; float32 weights follow. The answer, frame `evaluated`, is a TrainedHead without weights.
struct EvaluateHead {
  uint64_t update = 0, version = 0;
};
std::string evaluate_body(const EvaluateHead& head);
/// Throws WireError.
EvaluateHead parse_evaluate(std::string_view body);

/// The run's end of one evaluation: what an evaluator makes of these weights. Throws LineClosed when it is gone, or
/// cannot compute it, and WireError for an answer that is none to this question.
algos::Metrics evaluate_over(PeerLine& line, const EvaluateHead& head, const Parameters& weights);

}  // namespace motley::actors
