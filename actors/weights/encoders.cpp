#include "actors/weights/encoders.h"

#include <algorithm>
#include <utility>

namespace motley::actors {
namespace {

int thread_count(int wanted) {
  constexpr int kMost = 8, kShare = 4;
  return wanted > 0 ? wanted : std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / kShare, 1, kMost);
}

}  // namespace

ChunkEncoders::ChunkEncoders(int count, int level, std::function<void()> on_result)
    : level_(level), on_result_(std::move(on_result)) {
  for (int i = 0; i < thread_count(count); ++i) threads_.emplace_back([this] { run(); });
}

ChunkEncoders::~ChunkEncoders() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ChunkEncoders::submit(EncodingJob job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  work_.notify_one();
}

std::vector<EncodingJob> ChunkEncoders::results() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void ChunkEncoders::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    EncodingJob job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const std::span<const std::byte> against = job.base ? job.base->chunk(job.index) : std::span<const std::byte>();
    try {
      job.result = std::make_shared<const EncodedChunk>(encode_chunk(job.weights->chunk(job.index), against, level_));
    } catch (const std::bad_alloc&) {
      job.result = std::make_shared<const EncodedChunk>();  // raw: needs no memory
    }
    lock.lock();
    done_.push_back(std::move(job));
    lock.unlock();
    on_result_();
    lock.lock();
  }
}

}  // namespace motley::actors
