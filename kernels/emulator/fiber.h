// A fiber with a stack and a guard page of its own that does the same work again and again. Switches are told to
// AddressSanitizer and ThreadSanitizer.
#pragma once

#include <boost/context/fiber.hpp>
#include <functional>

namespace motley::kernels::emulator {

class Fiber {
 public:
  /// `work` is called at every first resume() after construction and after it returned. It must not throw.
  explicit Fiber(std::function<void()> work);
  /// The fiber must be between two pieces of work.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs until the work suspends or returns. From outside.
  void resume();
  /// Goes back to resume(). From inside.
  void suspend();

 private:
  void loop();

  std::function<void()> work_;
  bool ending_ = false;
  boost::context::fiber inside_, outside_;
  const void* stack_bottom_ = nullptr;  // of the fiber, then of whoever resumed it
  size_t stack_size_ = 0;
  const void* outer_bottom_ = nullptr;
  size_t outer_size_ = 0;
  [[maybe_unused]] void* thread_fiber_ = nullptr;  // ThreadSanitizer's names
  [[maybe_unused]] void* outer_fiber_ = nullptr;
};

}  // namespace motley::kernels::emulator
