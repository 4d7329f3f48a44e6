// The engine of a sampler in another process, on a thread of its own: what the sockets bring is done between two decode
// steps. Free of CAF and ZeroMQ.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/decoder.h"

namespace motley::actors {

class ReplicaThread {
 public:
  /// Called on the thread; they may not block for long.
  struct Events {
    std::function<void(DecodeReport)> report;
    std::function<void(Calibration)> calibrated;
    std::function<void(uint64_t version, uint64_t digest)> live;
    std::function<void(const std::string&)> note;
    std::function<void()> left;                      // everything is reported, nothing runs
    std::function<void(const std::string&)> failed;  // once; nothing comes after it
  };
  ReplicaThread(const DecoderOptions& options, Events events);
  /// Ends after the step that is under way.
  ~ReplicaThread();

  // From any thread.
  void set_weights(std::shared_ptr<const SamplerWeights> weights);
  void submit(std::vector<GenerateRequest> requests);
  void calibrate(std::vector<GenerateRequest> requests);
  void leave();

 private:
  void post(std::function<void()> work);
  void run();
  void work();

  Events events_;
  Decoder decoder_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::function<void()>> work_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace motley::actors
