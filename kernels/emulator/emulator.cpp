#include "kernels/emulator/emulator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/emulator/fiber.h"
#include "kernels/emulator/guarded.h"

namespace motley::kernels::emulator {

constinit thread_local Place place;

namespace {

struct Unwound {};  // takes the fibers of a faulty launch back to their start

enum class State : uint8_t { ready, at_shuffle, at_barrier, done };

struct Lane {
  std::unique_ptr<Fiber> fiber;
  State state = State::done;
  bool inside = false;  // the body: its fiber waits somewhere in it
  Where where;
  int parity = 0;  // of the shuffles so far: two slots let a lane go on while others still read
  alignas(kSlotBytes) unsigned char slots[2][kSlotBytes] = {};
};

struct SharedArray {
  const void* key;
  std::unique_ptr<GuardedBytes> memory;
  Poison poison;
  bool fresh;  // not yet asked for in this block
};

std::string text_of(const Where& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line()) + ":" + std::to_string(where.column());
}
bool same(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

/// SplitMix64 (Steele, Lea, Flood 2014): orders need no more.
uint64_t scrambled(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
/// 0 .. count - 1, permuted by a seed other than 0.
void fill_order(std::vector<int64_t>& order, int64_t count, uint64_t seed) {
  order.resize(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (seed == 0) return;
  for (int64_t i = count - 1; i > 0; --i) {
    seed = scrambled(seed);
    std::swap(order[static_cast<size_t>(i)], order[seed % static_cast<uint64_t>(i + 1)]);
  }
}

/// The device of one host thread.
class Machine {
 public:
  void run(const Launch& launch, const std::function<void()>& body);
  void wait(State state, const Where& where);
  void exchange(const void* mine, void* theirs, size_t bytes, int mask, const Where& where);
  void* shared_bytes(const void* key, size_t bytes, Poison poison);
  uint64_t seed = 0;

 private:
  void prepare(const Launch& launch);
  void run_block();
  void run_warp(int first, int count);
  bool release_barrier();
  void resume(int thread);
  void unwind();
  void check_shared();
  [[noreturn]] void fail(int thread, const std::string& what) const;

  const Launch* launch_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::vector<Lane> lanes_;  // fibers stay for the next launch
  std::vector<SharedArray> shared_;
  std::vector<int64_t> warp_order_, lane_order_;
  std::exception_ptr error_;  // of the body
  bool unwinding_ = false;
};

void Machine::fail(int thread, const std::string& what) const {
  throw Fault(std::string(launch_->name) + ": block " + std::to_string(place.block) + " of " +
              std::to_string(place.blocks) + ", thread " + std::to_string(thread) + " " + what);
}

void Machine::prepare(const Launch& launch) {
  if (launch_ != nullptr) throw Fault(std::string(launch.name) + ": launched from inside a kernel");
  if (launch.threads <= 0 || launch.threads > 1024 || launch.threads % kWarp != 0 || launch.blocks > 0x7fffffff)
    throw Fault(std::string(launch.name) + ": a launch of " + std::to_string(launch.blocks) + " blocks of " +
                std::to_string(launch.threads) + " threads");
  shared_.clear();
  if (lanes_.size() < static_cast<size_t>(launch.threads)) lanes_.resize(static_cast<size_t>(launch.threads));
  for (Lane& lane : lanes_) {
    if (lane.fiber != nullptr) continue;
    lane.fiber = std::make_unique<Fiber>([this] {
      try {
        (*body_)();
      } catch (const Unwound&) {
      } catch (...) {
        error_ = std::current_exception();
      }
      lanes_[static_cast<size_t>(place.thread)].state = State::done;
      lanes_[static_cast<size_t>(place.thread)].inside = false;
    });
  }
}

void Machine::run(const Launch& launch, const std::function<void()>& body) {
  if (launch.blocks <= 0) return;
  prepare(launch);
  launch_ = &launch;
  body_ = &body;
  place = {0, launch.blocks, 0, launch.threads};
  const auto finish = [&] {
    unwind();
    launch_ = nullptr;
    place = {};
  };
  try {
    std::vector<int64_t> order;
    fill_order(order, launch.blocks, seed);
    for (const int64_t block : order) {
      place.block = block;
      run_block();
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void Machine::run_block() {
  const uint64_t order = seed == 0 ? 0 : scrambled(seed ^ scrambled(static_cast<uint64_t>(place.block)));
  fill_order(warp_order_, launch_->threads / kWarp, order);
  fill_order(lane_order_, kWarp, order);
  for (SharedArray& array : shared_) array.fresh = true;
  for (int t = 0; t < launch_->threads; ++t) {
    lanes_[static_cast<size_t>(t)].state = State::ready;
    lanes_[static_cast<size_t>(t)].parity = 0;
  }
  do {
    for (const int64_t warp : warp_order_) run_warp(static_cast<int>(warp) * kWarp, kWarp);
  } while (release_barrier());
  check_shared();
}

/// Runs a warp until all its lanes wait at a barrier or are done.
void Machine::run_warp(int first, int count) {
  for (;;) {
    for (const int64_t lane : lane_order_)
      if (lanes_[static_cast<size_t>(first + lane)].state == State::ready) resume(first + static_cast<int>(lane));
    int waiting = -1, other = -1;
    for (int t = first; t < first + count; ++t)
      (lanes_[static_cast<size_t>(t)].state == State::at_shuffle ? waiting : other) = t;
    if (waiting < 0) return;
    const Lane& leader = lanes_[static_cast<size_t>(waiting)];
    const std::string at = "waits at the shuffle of " + text_of(leader.where) + ", but thread ";
    if (other >= 0) {
      const Lane& lane = lanes_[static_cast<size_t>(other)];
      fail(waiting,
           at + std::to_string(other) + " of its warp " +
               (lane.state == State::done ? "has returned" : "waits at the barrier of " + text_of(lane.where)));
    }
    for (int t = first; t < first + count; ++t) {
      Lane& lane = lanes_[static_cast<size_t>(t)];
      if (!same(lane.where, leader.where))
        fail(waiting, at + std::to_string(t) + " of its warp at the shuffle of " + text_of(lane.where));
      lane.state = State::ready;
    }
  }
}

/// False when the block is done.
bool Machine::release_barrier() {
  int waiting = -1, done = -1;
  for (int t = 0; t < launch_->threads; ++t) (lanes_[static_cast<size_t>(t)].state == State::done ? done : waiting) = t;
  if (waiting < 0) return false;
  const Where where = lanes_[static_cast<size_t>(waiting)].where;
  const std::string at = "waits at the barrier of " + text_of(where) + ", but thread ";
  if (done >= 0) fail(waiting, at + std::to_string(done) + " has returned");
  for (int t = 0; t < launch_->threads; ++t) {
    Lane& lane = lanes_[static_cast<size_t>(t)];
    if (!same(lane.where, where)) fail(waiting, at + std::to_string(t) + " at the barrier of " + text_of(lane.where));
    lane.state = State::ready;
  }
  return true;
}

void Machine::resume(int thread) {
  place.thread = thread;
  lanes_[static_cast<size_t>(thread)].inside = true;
  lanes_[static_cast<size_t>(thread)].fiber->resume();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

/// Lets every fiber that still waits return.
void Machine::unwind() {
  unwinding_ = true;
  for (size_t t = 0; t < lanes_.size(); ++t) {
    if (!lanes_[t].inside) continue;
    place.thread = static_cast<int>(t);
    lanes_[t].fiber->resume();
  }
  unwinding_ = false;
  error_ = nullptr;
}

void Machine::wait(State state, const Where& where) {
  Lane& lane = lanes_[static_cast<size_t>(place.thread)];
  lane.state = state;
  lane.where = where;
  lane.fiber->suspend();
  if (unwinding_) throw Unwound();
}

void Machine::exchange(const void* mine, void* theirs, size_t bytes, int mask, const Where& where) {
  const int thread = place.thread;
  Lane& lane = lanes_[static_cast<size_t>(thread)];
  const int parity = lane.parity;
  std::memcpy(lane.slots[parity], mine, bytes);
  lane.parity ^= 1;
  wait(State::at_shuffle, where);
  const int source = (thread % kWarp) ^ mask;
  if (source < 0 || source >= kWarp)
    throw Fault(std::string(launch_->name) + ": thread " + std::to_string(thread) + " takes from lane " +
                std::to_string(source) + " in the shuffle of " + text_of(where));
  std::memcpy(theirs, lanes_[static_cast<size_t>(thread - thread % kWarp + source)].slots[parity], bytes);
}

void fill_poison(const SharedArray& array, uint64_t seed) {
  const uint64_t pattern = array.poison == Poison::f64   ? 0x7ff4a5a5a5a5a5a5u
                           : array.poison == Poison::f32 ? 0x7fa5a5a57fa5a5a5u
                                                         : scrambled(seed);
  auto* bytes = static_cast<unsigned char*>(array.memory->data());
  for (size_t i = 0; i < array.memory->size(); ++i) bytes[i] = static_cast<unsigned char>(pattern >> (i % 8 * 8));
}

void* Machine::shared_bytes(const void* key, size_t bytes, Poison poison) {
  auto found = std::find_if(shared_.begin(), shared_.end(), [&](const SharedArray& a) { return a.key == key; });
  if (found == shared_.end()) {
    size_t total = bytes;
    for (const SharedArray& array : shared_) total += array.memory->size();
    if (total > static_cast<size_t>(kSharedBytes))
      throw Fault(std::string(launch_->name) + ": " + std::to_string(total) + " bytes of shared memory, of " +
                  std::to_string(kSharedBytes));
    shared_.push_back({key, std::make_unique<GuardedBytes>(bytes), poison, true});
    found = shared_.end() - 1;
  }
  if (std::exchange(found->fresh, false)) fill_poison(*found, seed);
  return found->memory->data();
}

void Machine::check_shared() {
  for (const SharedArray& array : shared_)
    if (!array.memory->intact())
      throw Fault(std::string(launch_->name) + ": block " + std::to_string(place.block) +
                  " stores outside a shared array of " + std::to_string(array.memory->size()) + " bytes");
}

Machine& machine() {
  thread_local Machine instance;
  return instance;
}

}  // namespace

void set_order(uint64_t seed) { machine().seed = seed; }
void run(const Launch& launch, const std::function<void()>& body) { machine().run(launch, body); }
void barrier(const Where& where) { machine().wait(State::at_barrier, where); }
void exchange(const void* mine, void* theirs, size_t bytes, int mask, const Where& where) {
  machine().exchange(mine, theirs, bytes, mask, where);
}
void* shared_bytes(const void* key, size_t bytes, Poison poison) { return machine().shared_bytes(key, bytes, poison); }

}  // namespace motley::kernels::emulator
