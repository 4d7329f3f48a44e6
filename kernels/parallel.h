// One pool of compute threads for the process. Results never depend on the number of threads: work is split over
// outputs, never over a reduction.
#pragma once

#include <cstdint>
#include <functional>

namespace motley::kernels {

/// How many threads `parallel_for` may use when called from this thread (1 until set). Samplers and the learner each
/// set their share once, so that the process never runs more threads than the user asked for.
void set_compute_threads(int threads);
int compute_threads();

/// Runs body(begin, end) over disjoint pieces of [0, count), each of at least `grain` items; returns when all are done.
/// An exception of a piece is rethrown here. Nested calls run serially.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace motley::kernels
