// One pool of compute threads for the process, which never runs more of them than it was given. Results never depend
// on their number: work is split over outputs, never over a reduction.
//
// Who computes for long (a learner's step, a sampler's decode step) takes a lease of its side of the process: while
// both sides want to compute each has its share of the threads, while one rests the other may take them all.
#pragma once

#include <cstdint>
#include <functional>

namespace motley::kernels {

/// Compute threads of the whole process (1 until set), of which `trainer_threads` are the trainer's share and the rest,
/// at least one, the samplers'. Not while a lease is held or a parallel_for runs.
void set_compute_threads(int threads, int trainer_threads = 1);
int compute_threads();

/// Runs body(begin, end) over disjoint pieces of [0, count), each of at least `grain` items; returns when all are done.
/// Threads that nobody with a better right wants help. An exception of a piece is rethrown here. Nested calls run
/// serially.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

enum class ComputeSide : uint8_t { trainer, sampler };

/// Somebody who takes leases, one at a time, from one thread. From its first lease on until it rests it counts as
/// having work.
class ComputeClient {
 public:
  explicit ComputeClient(ComputeSide side) : side_(side) {}
  ~ComputeClient() { rest(); }
  ComputeClient(const ComputeClient&) = delete;
  ComputeClient& operator=(const ComputeClient&) = delete;
  /// Nothing is left to compute until the next lease.
  void rest();

 private:
  friend class ComputeLease;
  ComputeSide side_;
  bool has_work_ = false;
};

/// One compute thread, this one, while it lives; waits for it. Clients of a side are served in the order in which they
/// come.
class ComputeLease {
 public:
  explicit ComputeLease(ComputeClient& client);
  ~ComputeLease();
  ComputeLease(const ComputeLease&) = delete;
  ComputeLease& operator=(const ComputeLease&) = delete;

 private:
  ComputeSide side_;
};

/// What the compute threads did since the process started, in nanoseconds.
struct ComputeUse {
  uint64_t busy = 0;     // summed over threads: held by a lease, or helping one
  uint64_t any = 0;      // at least one thread was busy
  uint64_t starved = 0;  // summed over threads: idle although a client had work and no lease
};
ComputeUse compute_use();

}  // namespace motley::kernels
