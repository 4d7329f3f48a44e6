#include "actors/remote/replica_thread.h"

#include "actors/remote/wire.h"

namespace motley::actors {

ReplicaThread::ReplicaThread(const DecoderOptions& options, Events events)
    : events_(std::move(events)), decoder_(options), thread_([this] { run(); }) {}

ReplicaThread::~ReplicaThread() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void ReplicaThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  posted_.notify_one();
}

void ReplicaThread::set_weights(std::shared_ptr<const SamplerWeights> weights) {
  post([this, weights = std::move(weights)] {
    decoder_.set_weights(weights);
    events_.live(weights->version(), weights->digest());
  });
}

void ReplicaThread::submit(std::vector<GenerateRequest> requests) {
  post([this, requests = std::move(requests)]() mutable {
    if (!decoder_.ready()) throw WireError("it is asked for tokens before it has weights");
    decoder_.submit(requests);
  });
}

void ReplicaThread::calibrate(std::vector<GenerateRequest> requests) {
  post([this, requests = std::move(requests)] {
    if (!decoder_.ready()) throw WireError("it is asked for tokens before it has weights");
    events_.calibrated(decoder_.calibrate(requests));
  });
}

void ReplicaThread::leave() {
  post([this] {
    events_.report(decoder_.leave());
    events_.left();
  });
}

void ReplicaThread::run() {
  try {
    work();
  } catch (const std::exception& error) {
    events_.failed(error.what());
  }
}

void ReplicaThread::work() {
  for (;;) {
    std::vector<std::function<void()>> work;
    {
      std::unique_lock lock(mutex_);
      if (decoder_.idle()) posted_.wait(lock, [this] { return done_ || !work_.empty(); });
      if (done_) return;
      work.swap(work_);
    }
    for (const auto& each : work) each();
    if (!decoder_.idle()) decoder_.step();
    if (auto report = decoder_.report()) events_.report(std::move(*report));
    if (const auto refusal = decoder_.take_refusal())
      events_.note("it launches its kernels one by one, since its decode steps cannot be captured as a graph: " +
                   *refusal);
    if (decoder_.idle()) decoder_.rest();
  }
}

}  // namespace motley::actors
