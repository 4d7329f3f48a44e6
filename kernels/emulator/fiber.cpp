#include "kernels/emulator/fiber.h"

#include <boost/context/protected_fixedsize_stack.hpp>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace motley::kernels::emulator {
namespace {

namespace context = boost::context;
constexpr size_t kStackBytes = size_t{64} * 1024;

/// Before a switch to a stack; `fake` keeps what AddressSanitizer knows of the present one (null: it ends).
void leave([[maybe_unused]] void** fake, [[maybe_unused]] const void* bottom, [[maybe_unused]] size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake, bottom, size);
#endif
}
/// After a switch, on the new stack; tells where the switch came from.
void arrive([[maybe_unused]] void* fake, [[maybe_unused]] const void** bottom, [[maybe_unused]] size_t* size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, bottom, size);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> work) : work_(std::move(work)) {
  context::protected_fixedsize_stack stacks(kStackBytes);
  const context::stack_context stack = stacks.allocate();
  stack_bottom_ = static_cast<char*>(stack.sp) - stack.size;
  stack_size_ = stack.size;
  inside_ = context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack), stacks,
                           [this](context::fiber&& outside) {
                             outside_ = std::move(outside);
                             arrive(nullptr, &outer_bottom_, &outer_size_);
                             loop();
                             leave(nullptr, outer_bottom_, outer_size_);
#if defined(__SANITIZE_THREAD__)
                             __tsan_switch_to_fiber(outer_fiber_, 0);
#endif
                             return std::move(outside_);
                           });
#if defined(__SANITIZE_THREAD__)
  thread_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  ending_ = true;
  resume();
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(thread_fiber_);
#endif
}

void Fiber::loop() {
  while (!ending_) {
    work_();
    suspend();
  }
}

void Fiber::resume() {
  void* fake = nullptr;
  leave(&fake, stack_bottom_, stack_size_);
#if defined(__SANITIZE_THREAD__)
  outer_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_fiber_, 0);
#endif
  inside_ = std::move(inside_).resume();
  arrive(fake, nullptr, nullptr);
}

void Fiber::suspend() {
  void* fake = nullptr;
  leave(&fake, outer_bottom_, outer_size_);
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(outer_fiber_, 0);
#endif
  outside_ = std::move(outside_).resume();
  arrive(fake, &outer_bottom_, &outer_size_);
}

}  // namespace motley::kernels::emulator
