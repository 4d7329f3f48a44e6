// What a learner does for a run elsewhere: it trains on the batches that come, and gives its state when it is asked
// for. Free of CAF and ZeroMQ.
#pragma once

#include "actors/experiment.h"
#include "actors/remote/learner_wire.h"

namespace motley::actors {

/// Until it is released. `served`: called after every update. Throws LineClosed when the run is gone, and
/// what the trainer throws, of which the run has been told.
void serve_run(PeerLine& line, const Experiment& experiment, const TransformerConfig& model,
               const std::function<void()>& served);

}  // namespace motley::actors
