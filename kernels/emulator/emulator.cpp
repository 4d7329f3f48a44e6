#include "kernels/emulator/emulator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/emulator/async_copies.h"
#include "kernels/emulator/fiber.h"
#include "kernels/emulator/random_order.h"

namespace motley::kernels::emulator {

constinit thread_local Place place;

namespace {

struct Unwound {};  // takes the fibers of a faulty launch back to their start

enum class State : uint8_t { ready, in_warp, at_barrier, done };  // in_warp: waits for its other lanes

struct Lane {
  std::unique_ptr<Fiber> fiber;
  State state = State::done;
  bool inside = false;  // the body: its fiber waits somewhere in it
  Where where;
  int parity = 0;  // of the meetings so far: two slots let a lane go on while others still read
  alignas(kSlotBytes) unsigned char slots[2][kSlotBytes] = {};
  AsyncCopies copies;
};

std::string text_of(const Where& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line()) + ":" + std::to_string(where.column());
}
bool same(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
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
  void meet(const void* mine, size_t bytes, const Where& where);
  const void* given(int lane, const Where& where) const;
  void* shared_bytes(const void* key, size_t bytes, Poison poison);
  unsigned char* dynamic_shared();
  void check_shared(const void* data, size_t bytes, const Where& where) const;
  void check_aligned(const void* data, size_t bytes, const Where& where) const;
  void copy_async(void* to, const void* from, size_t bytes, size_t valid, const Where& where);
  void commit_copies() { here().copies.commit(); }
  void wait_for_copies(int pending, const Where& where);
  uint64_t seed = 0;

 private:
  void prepare(const Launch& launch);
  void run_block();
  void run_warp(int first, int count);
  bool release_barrier();
  void resume(int thread);
  void unwind();
  void check_block();
  Lane& here() { return lanes_[static_cast<size_t>(place.thread)]; }
  [[noreturn]] void fail(int thread, const std::string& what) const;

  const Launch* launch_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::vector<Lane> lanes_;  // fibers stay for the next launch
  SharedMemory shared_, dynamic_;
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
  if (launch.shared < 0 || launch.shared > kSharedBytes)
    throw Fault(std::string(launch.name) + ": " + std::to_string(launch.shared) +
                " bytes of dynamic shared memory, of " + std::to_string(kSharedBytes));
  shared_.clear();
  dynamic_.clear();
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
  shared_.next_block();
  dynamic_.next_block();
  for (int t = 0; t < launch_->threads; ++t) {
    lanes_[static_cast<size_t>(t)].state = State::ready;
    lanes_[static_cast<size_t>(t)].parity = 0;
    lanes_[static_cast<size_t>(t)].copies.clear();
  }
  do {
    for (const int64_t warp : warp_order_) run_warp(static_cast<int>(warp) * kWarp, kWarp);
  } while (release_barrier());
  check_block();
}

/// Runs a warp until all its lanes wait at a barrier or are done.
void Machine::run_warp(int first, int count) {
  for (;;) {
    for (const int64_t lane : lane_order_)
      if (lanes_[static_cast<size_t>(first + lane)].state == State::ready) resume(first + static_cast<int>(lane));
    int waiting = -1, other = -1;
    for (int t = first; t < first + count; ++t)
      (lanes_[static_cast<size_t>(t)].state == State::in_warp ? waiting : other) = t;
    if (waiting < 0) return;
    const Lane& leader = lanes_[static_cast<size_t>(waiting)];
    const std::string at = "waits at the warp operation of " + text_of(leader.where) + ", but thread ";
    if (other >= 0) {
      const Lane& lane = lanes_[static_cast<size_t>(other)];
      fail(waiting,
           at + std::to_string(other) + " of its warp " +
               (lane.state == State::done ? "has returned" : "waits at the barrier of " + text_of(lane.where)));
    }
    for (int t = first; t < first + count; ++t) {
      Lane& lane = lanes_[static_cast<size_t>(t)];
      if (!same(lane.where, leader.where))
        fail(waiting, at + std::to_string(t) + " of its warp at the warp operation of " + text_of(lane.where));
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

void Machine::meet(const void* mine, size_t bytes, const Where& where) {
  Lane& lane = here();
  std::memcpy(lane.slots[lane.parity], mine, bytes);
  lane.parity ^= 1;
  wait(State::in_warp, where);
}

const void* Machine::given(int lane, const Where& where) const {
  const int thread = place.thread;
  if (lane < 0 || lane >= kWarp)
    throw Fault(std::string(launch_->name) + ": thread " + std::to_string(thread) + " takes from lane " +
                std::to_string(lane) + " in the warp operation of " + text_of(where));
  const int parity = lanes_[static_cast<size_t>(thread)].parity ^ 1;
  const int giver = thread - thread % kWarp + lane;
  return lanes_[static_cast<size_t>(giver)].slots[parity];
}

void* Machine::shared_bytes(const void* key, size_t bytes, Poison poison) {
  try {
    return shared_.array(key, bytes, poison, seed, kStaticSharedBytes);
  } catch (const std::length_error& error) {
    throw Fault(std::string(launch_->name) + ": " + error.what());
  }
}

unsigned char* Machine::dynamic_shared() {
  static const char key = 0;
  try {
    return static_cast<unsigned char*>(
        dynamic_.array(&key, static_cast<size_t>(launch_->shared), Poison::ones, seed, kSharedBytes));
  } catch (const std::length_error& error) {
    throw Fault(std::string(launch_->name) + ": " + error.what());
  }
}

void Machine::check_shared(const void* data, size_t bytes, const Where& where) const {
  const bool inside = shared_.contains(data, bytes) || dynamic_.contains(data, bytes);
  if (!inside) fail(place.thread, "reaches outside shared memory in " + text_of(where));
  check_aligned(data, bytes, where);
}

void Machine::check_aligned(const void* data, size_t bytes, const Where& where) const {
  if (reinterpret_cast<uintptr_t>(data) % bytes != 0)
    fail(place.thread,
         "reaches an address that is not aligned to " + std::to_string(bytes) + " bytes in " + text_of(where));
}

void Machine::copy_async(void* to, const void* from, size_t bytes, size_t valid, const Where& where) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || valid > bytes)
    fail(place.thread,
         "copies " + std::to_string(valid) + " of " + std::to_string(bytes) + " bytes in " + text_of(where));
  check_shared(to, bytes, where);
  check_aligned(from, bytes, where);
  here().copies.start(to, from, bytes, valid);
}

void Machine::wait_for_copies(int pending, const Where& where) {
  if (!here().copies.wait(pending))
    fail(place.thread, "waits at " + text_of(where) + " for a copy to where something was stored meanwhile");
}

void Machine::check_block() {
  for (SharedMemory* memory : {&shared_, &dynamic_}) {
    if (const size_t bytes = memory->overrun(); bytes != 0)
      throw Fault(std::string(launch_->name) + ": block " + std::to_string(place.block) +
                  " stores outside a shared array of " + std::to_string(bytes) + " bytes");
  }
  const size_t total = shared_.bytes() + dynamic_.bytes();
  if (total > static_cast<size_t>(kSharedBytes))
    throw Fault(std::string(launch_->name) + ": " + std::to_string(total) + " bytes of shared memory, of " +
                std::to_string(kSharedBytes));
  for (int t = 0; t < launch_->threads; ++t)
    if (const size_t count = lanes_[static_cast<size_t>(t)].copies.under_way(); count != 0)
      fail(t, "has returned with " + std::to_string(count) + " copies that it did not wait for");
}

Machine& machine() {
  thread_local Machine instance;
  return instance;
}

}  // namespace

void set_order(uint64_t seed) { machine().seed = seed; }
void run(const Launch& launch, const std::function<void()>& body) { machine().run(launch, body); }
void barrier(const Where& where) { machine().wait(State::at_barrier, where); }
void meet(const void* mine, size_t bytes, const Where& where) { machine().meet(mine, bytes, where); }
const void* given(int lane, const Where& where) { return machine().given(lane, where); }
void* shared_bytes(const void* key, size_t bytes, Poison poison) { return machine().shared_bytes(key, bytes, poison); }
unsigned char* dynamic_shared() { return machine().dynamic_shared(); }
void check_shared(const void* data, size_t bytes, const Where& where) { machine().check_shared(data, bytes, where); }
void copy_async(void* to, const void* from, size_t bytes, size_t valid, const Where& where) {
  machine().copy_async(to, from, bytes, valid, where);
}
void commit_copies() { machine().commit_copies(); }
void wait_for_copies(int pending, const Where& where) { machine().wait_for_copies(pending, where); }

}  // namespace motley::kernels::emulator
