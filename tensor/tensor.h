// Eager tensors with reverse-mode differentiation. A Tensor is a shared handle: copying it copies a pointer. Always
// contiguous, row-major, in the memory of one device (kernels/device.h). Ops run on the device of their operands, which
// must be one; their lists of ids and positions are the host's.
//
// Gradients: `backward` walks the recorded nodes in reverse order of their creation, so sums of gradients have a fixed
// order. A leaf's gradient has the compute type (f32 for f32, bf16, f16; f64 for f64); the gradient of an intermediate
// result has that result's own type (a bf16 trainer has bf16 activation gradients, which is where fp16 overflows).
// Closures add into gradients in place, so that a chain over tokens continues across micro-batches (kernels/matmul.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "kernels/dtype.h"

namespace motley {

using kernels::Device;
using kernels::DType;
using Shape = std::vector<int64_t>;

/// A broken contract between parts of motley (not the user's input): thrown by MOTLEY_CHECK with the op's name.
class ContractError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};
[[noreturn]] void contract_failed(std::string_view op, const std::string& message);
#define MOTLEY_CHECK(condition, op, message)                      \
  do {                                                            \
    if (!(condition)) ::motley::contract_failed((op), (message)); \
  } while (false)

class Tensor {
 public:
  Tensor() = default;
  /// Throw std::runtime_error where the device is not there or has no memory left.
  static Tensor empty(Shape shape, DType dtype, const Device& device = {});  // contents undefined
  static Tensor zeros(Shape shape, DType dtype, const Device& device = {});
  /// Values are converted (rounded once) to dtype.
  static Tensor from(std::span<const double> values, Shape shape, DType dtype, const Device& device = {});
  static Tensor from(std::span<const float> values, Shape shape, DType dtype, const Device& device = {});

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  int64_t dim(int index) const;  // negative counts from the end
  int64_t numel() const;
  DType dtype() const;
  const Device& device() const;
  /// The memory, which only kernels of the tensor's device may touch.
  void* raw() const;
  /// The same, typed; the type must be dtype's storage type.
  template <class T>
  T* pointer() const {
    MOTLEY_CHECK(kernels::dtype_of<T>() == dtype(), "data", std::string("tensor is ") + kernels::dtype_name(dtype()));
    return static_cast<T*>(raw());
  }
  /// For the host: refused unless the tensor is on the CPU.
  template <class T>
  T* data() const {
    check_host("data");
    return pointer<T>();
  }
  template <class T>
  std::span<T> span() const {
    check_host("span");
    return {pointer<T>(), static_cast<size_t>(numel())};
  }
  /// A copy for the host, from any device.
  std::vector<double> to_doubles() const;
  /// The tensor itself if it is there already, else a copy; differentiable: the gradient is copied back.
  Tensor to(const Device& device) const;

  /// The same data under another shape; differentiable.
  Tensor reshape(Shape shape) const;
  Tensor clone() const;                      // a copy without history
  Tensor clone(const Device& device) const;  // the same on any device
  Tensor detach() const;                     // the same data without history

  /// A leaf whose gradient is wanted.
  Tensor& set_requires_grad(bool wanted);
  bool requires_grad() const;  // leaf with a gradient, or a result of one
  /// The gradient accumulated so far (undefined if none yet); `grad_buffer` makes it (zeros) if need be.
  Tensor grad() const;
  Tensor grad_buffer() const;
  void zero_grad();
  /// For ops. The gradient so far, if a kernel may add to it in place: an intermediate result's, nobody else's.
  /// Undefined otherwise.
  Tensor growing_grad() const;
  /// For ops. The type of the gradient: see above; a cast of a leaf has its gradient in the compute type too.
  DType grad_dtype() const;
  /// Adds a contribution to the gradient, converted to the gradient's type. The first one is taken over, not copied,
  /// where nobody else could see it change.
  void add_grad(Tensor contribution) const;
  /// The buffer in which a kernel continues its chain over tokens (zeros at first).
  Tensor chain_buffer() const;
  /// The same for a kernel that adds to some rows of a matrix only: element i of `places` is the row of `sums` in which
  /// the chain of row ids[i] goes on. A matrix that serves two ops (a tied head and embedding) has a chain for each,
  /// added once when the gradient is read: so each continues unbroken over micro-batches, and their split changes no
  /// bit. Rows that no id names take no memory.
  struct RowChain;
  RowChain row_chain(std::span<const int32_t> ids) const;
  /// chain_buffer for a kernel that sets all of it, if the gradient of a leaf is zero so far; else undefined. Nobody
  /// has to write the zeros then, nor read them.
  Tensor unset_chain() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  void check_host(std::string_view op) const;
  static Tensor view(const Tensor& of, int64_t offset, Shape shape);  // elements from `offset` on, without history
  /// A tensor of x's shape and type in x's memory, where that is no leaf's and not shared; else in memory of its own.
  /// x keeps its history, but may not be read any more.
  static Tensor take_over(const Tensor& x);
  friend struct GraphWalk;
  friend Tensor cast(const Tensor&, DType);
  friend Tensor slice(const Tensor&, int64_t, Shape);
  friend Tensor record(std::string_view, Tensor, std::vector<Tensor>, std::function<void(const Tensor&)>);
  friend void backward(const Tensor&, const Tensor&);
  friend Tensor checkpoint(const Tensor&, std::function<Tensor(const Tensor&)>);
  friend Tensor rope_in_place(Tensor, std::span<const int32_t>, int64_t, const struct RopeTable&);
};

struct Tensor::RowChain {
  Tensor sums;
  std::vector<int32_t> places;
};

/// Marks `y` as a result of `inputs`. `closure(dy)` gives every input that requires a gradient its part (add_grad,
/// chain_buffer, row_chain). Does nothing when gradients are off or no input requires one.
Tensor record(std::string_view op, Tensor y, std::vector<Tensor> inputs, std::function<void(const Tensor& dy)> closure);
/// Elements [offset, offset + numel(shape)) of x under a shape of their own: the same data; differentiable.
Tensor slice(const Tensor& x, int64_t offset, Shape shape);
/// Propagates dy (shape, type and device of y) to every leaf. The graph of y is released as it is walked; a second walk
/// over any part of it is refused with ContractError, before any gradient has changed.
void backward(const Tensor& y, const Tensor& dy);

/// body(x), of which only x is kept: backward runs it again, and its graph lives until x's gradient is known. Gradients
/// have the bits that body(x) would give, if the body does the same both times and x has no other use (else sums may be
/// taken in another order).
Tensor checkpoint(const Tensor& x, std::function<Tensor(const Tensor&)> body);

/// Gradients are on or off in this thread while one lives.
class GradMode {
 public:
  explicit GradMode(bool on);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};
bool grad_enabled();

}  // namespace motley
