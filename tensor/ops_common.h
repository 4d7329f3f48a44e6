// What the ops share: checks of operands, kernels of the operands' device, lists for them, and how a kernel's result
// reaches a gradient.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/product_body.h"
#include "tensor/list_on_device.h"
#include "tensor/ops.h"
#include "tensor/tensor.h"

namespace motley::ops {

/// The device of all operands.
template <class... Others>
const Device& device_of(std::string_view op, const Tensor& first, const Others&... others) {
  const auto check = [&](const Tensor& other) {
    MOTLEY_CHECK(
        other.device() == first.device(), op,
        "operands on " + kernels::device_name(first.device()) + " and " + kernels::device_name(other.device()));
  };
  (check(others), ...);
  return first.device();
}

/// A list of the host's where a kernel of `device` can read it: the list itself on the CPU, else a copy, which is made
/// unless there is one (ListOnDevice).
template <class T>
class DeviceList {
 public:
  DeviceList() = default;
  DeviceList(const Device& device, std::span<const T> values) : data_(values.data()), count_(values.size()) {
    if (device.kind == kernels::DeviceKind::cpu) return;
    owned_ = std::static_pointer_cast<const T>(ListOnDevice::find(values.data(), values.size_bytes()));
    if (!owned_) owned_ = kernels::copied_to(device, values.data(), values.size());
    data_ = owned_.get();
  }
  const T* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(count_); }
  /// The same list, which lives as long as the result does.
  DeviceList kept() const {
    if (owned_) return *this;
    DeviceList copy = *this;
    const auto values = std::make_shared<const std::vector<T>>(data_, data_ + count_);
    copy.owned_ = std::shared_ptr<const T>(values, values->data());
    copy.data_ = values->data();
    return copy;
  }

 private:
  const T* data_ = nullptr;
  size_t count_ = 0;
  std::shared_ptr<const T> owned_;
};

/// A product where its operands lie.
inline void multiply(const Device& device, const kernels::MatmulArgs& args, Kernels choice) {
  kernels::compute_product(choice == Kernels::vendor ? kernels::ProductBody::vendor : kernels::ProductBody::chain,
                           device, args);
}

/// The first dimensions of x taken together; x has at least one dimension, and the last is not empty.
inline int64_t rows_of(const Tensor& x) { return x.dim(-1) == 0 ? 0 : x.numel() / x.dim(-1); }

inline void check_same(std::string_view op, const Tensor& a, const Tensor& b) {
  MOTLEY_CHECK(a.shape() == b.shape(), op, "operands of different shapes");
  MOTLEY_CHECK(
      a.dtype() == b.dtype(), op,
      std::string("operands of types ") + kernels::dtype_name(a.dtype()) + " and " + kernels::dtype_name(b.dtype()));
  device_of(op, a, b);
}

/// A tensor like x, contents undefined.
inline Tensor empty_like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }

/// body(buffer) adds into `buffer`, which has x's shape and the compute type: x's own gradient where that has this
/// type, so that the kernel's chain continues from what is there.
template <class Body>
void accumulate(const Tensor& x, Body&& body) {
  if (!x.requires_grad()) return;
  const DType compute = kernels::compute_dtype(x.dtype());
  if (x.grad_dtype() == compute) {
    body(x.chain_buffer());
    return;
  }
  Tensor part = Tensor::zeros(x.shape(), compute, x.device());
  body(part);
  x.add_grad(std::move(part));
}

}  // namespace motley::ops
