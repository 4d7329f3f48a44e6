// Threads that write chunks for the way, so that whoever serves them need not: compressing is slower than a fast
// network.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/weights/store.h"

namespace motley::actors {

/// A chunk to be encoded, and what it became.
struct EncodingJob {
  StoredWeightsPtr weights, base;  // base: null for none
  uint64_t index = 0;
  std::shared_ptr<const EncodedChunk> result;
};

class ChunkEncoders {
 public:
  /// `count` threads, 0: a quarter of the cores, from 1 to 8. `on_result` is called by one of them whenever a result is
  /// there to be taken. `level` is zstd's.
  ChunkEncoders(int count, int level, std::function<void()> on_result);
  ChunkEncoders(const ChunkEncoders&) = delete;
  ChunkEncoders& operator=(const ChunkEncoders&) = delete;
  /// Waits for the chunks that are being encoded; what still waits is dropped.
  ~ChunkEncoders();

  void submit(EncodingJob job);
  /// All that are done since the last call.
  std::vector<EncodingJob> results();

 private:
  void run();

  const int level_;
  const std::function<void()> on_result_;
  std::mutex mutex_;  // of the three that follow
  std::deque<EncodingJob> jobs_;
  std::vector<EncodingJob> done_;
  bool closing_ = false;
  std::condition_variable work_;
  std::vector<std::thread> threads_;
};

}  // namespace motley::actors
