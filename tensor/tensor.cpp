#include "tensor/tensor.h"

#include "kernels/buffer_pool.h"
#include "kernels/pointwise.h"
#include "tensor/ops_common.h"
#include "tensor/tensor_impl.h"

namespace motley {
namespace {

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    MOTLEY_CHECK(size >= 0, "tensor", "a dimension is negative: " + std::to_string(size));
    MOTLEY_CHECK(!__builtin_mul_overflow(count, size, &count), "tensor", "too many elements");
  }
  return count;
}

size_t byte_count(int64_t numel, DType dtype) { return static_cast<size_t>(numel) * kernels::dtype_size(dtype); }

template <class Value>
Tensor converted(std::span<const Value> values, Shape shape, DType dtype, const Device& device) {
  const Tensor result = Tensor::empty(std::move(shape), dtype);
  MOTLEY_CHECK(static_cast<int64_t>(values.size()) == result.numel(), "from",
               "got " + std::to_string(values.size()) + " values for " + std::to_string(result.numel()) + " elements");
  kernels::cpu::convert(result.raw(), dtype, values.data(), kernels::dtype_of<Value>(), result.numel());
  return result.to(device);
}

}  // namespace

void contract_failed(std::string_view op, const std::string& message) {
  throw ContractError(std::string(op) + ": " + message);
}

Tensor::Impl::Impl(Shape shape_, DType dtype_, const Device& device_, std::shared_ptr<void> data_)
    : shape(std::move(shape_)),
      numel(count_of(shape)),
      dtype(dtype_),
      device(device_),
      data(std::move(data_)),
      grad_dtype(dtype_) {
  if (data) return;
  const size_t bytes = byte_count(numel, dtype);
  data =
      device.kind == kernels::DeviceKind::cpu ? kernels::allocate_buffer(bytes) : kernels::allocate_on(device, bytes);
}

Tensor::Impl::~Impl() {
  // Nodes are put on a list and destroyed in a loop: a graph as deep as you like needs no stack.
  static thread_local std::vector<std::shared_ptr<GraphNode>>* pending = nullptr;
  if (!node) return;
  if (pending) {
    pending->push_back(std::move(node));
    return;
  }
  std::vector<std::shared_ptr<GraphNode>> nodes;
  pending = &nodes;
  nodes.push_back(std::move(node));
  while (!nodes.empty()) {
    const std::shared_ptr<GraphNode> last = std::move(nodes.back());
    nodes.pop_back();
  }
  pending = nullptr;
}

Tensor Tensor::empty(Shape shape, DType dtype, const Device& device) {
  return Tensor(std::make_shared<Impl>(std::move(shape), dtype, device, nullptr));
}

Tensor Tensor::zeros(Shape shape, DType dtype, const Device& device) {
  Tensor result = empty(std::move(shape), dtype, device);
  kernels::clear_bytes(result.raw(), device, byte_count(result.numel(), dtype));
  return result;
}

Tensor Tensor::from(std::span<const double> values, Shape shape, DType dtype, const Device& device) {
  return converted(values, std::move(shape), dtype, device);
}

Tensor Tensor::from(std::span<const float> values, Shape shape, DType dtype, const Device& device) {
  return converted(values, std::move(shape), dtype, device);
}

Tensor Tensor::view(const Tensor& of, int64_t offset, Shape shape) {
  const auto start = static_cast<std::byte*>(of.raw()) + byte_count(offset, of.dtype());
  auto impl =
      std::make_shared<Impl>(std::move(shape), of.dtype(), of.device(), std::shared_ptr<void>(of.impl_->data, start));
  MOTLEY_CHECK(offset >= 0 && offset + impl->numel <= of.numel(), "view", "reaches outside the tensor");
  return Tensor(std::move(impl));
}

const Shape& Tensor::shape() const {
  MOTLEY_CHECK(defined(), "shape", "the tensor is undefined");
  return impl_->shape;
}

int64_t Tensor::dim(int index) const {
  const int rank = static_cast<int>(shape().size());
  const int at = index < 0 ? index + rank : index;
  MOTLEY_CHECK(at >= 0 && at < rank, "dim",
               "index " + std::to_string(index) + " of a tensor with " + std::to_string(rank) + " dimensions");
  return impl_->shape[static_cast<size_t>(at)];
}

int64_t Tensor::numel() const {
  MOTLEY_CHECK(defined(), "numel", "the tensor is undefined");
  return impl_->numel;
}

DType Tensor::dtype() const {
  MOTLEY_CHECK(defined(), "dtype", "the tensor is undefined");
  return impl_->dtype;
}

const Device& Tensor::device() const {
  MOTLEY_CHECK(defined(), "device", "the tensor is undefined");
  return impl_->device;
}

void Tensor::check_host(std::string_view op) const {
  MOTLEY_CHECK(device().kind == kernels::DeviceKind::cpu, op,
               "the tensor is on " + kernels::device_name(device()) + ", out of the host's reach: copy it with to()");
}

void* Tensor::raw() const {
  MOTLEY_CHECK(defined(), "raw", "the tensor is undefined");
  MOTLEY_CHECK(impl_->data, "raw", "the tensor's memory was handed on to another");
  return impl_->data.get();
}

Tensor Tensor::take_over(const Tensor& x) {
  Impl& given = *x.impl_;
  if (given.leaf || given.grad_owner || given.data.use_count() != 1) {
    return empty(given.shape, given.dtype, given.device);
  }
  return Tensor(std::make_shared<Impl>(given.shape, given.dtype, given.device, std::move(given.data)));
}

std::vector<double> Tensor::to_doubles() const {
  const NoGrad values_only;
  const Tensor here = to(Device{});
  std::vector<double> values(static_cast<size_t>(numel()));
  kernels::cpu::convert(values.data(), DType::f64, here.raw(), dtype(), numel());
  return values;
}

Tensor Tensor::to(const Device& device) const {
  if (device == this->device()) return *this;
  const Tensor x = *this;
  return record("to", clone(device), {x}, [x](const Tensor& dy) { x.add_grad(dy.to(x.device())); });
}

Tensor Tensor::reshape(Shape shape) const {
  MOTLEY_CHECK(count_of(shape) == numel(), "reshape",
               "from " + std::to_string(numel()) + " to " + std::to_string(count_of(shape)) + " elements");
  const Tensor x = *this;
  return record("reshape", view(x, 0, std::move(shape)), {x},
                [x](const Tensor& dy) { x.add_grad(view(dy, 0, x.shape())); });
}

Tensor Tensor::clone() const { return clone(device()); }

Tensor Tensor::clone(const Device& device) const {
  Tensor copy = empty(shape(), dtype(), device);
  kernels::copy_bytes(copy.raw(), device, raw(), this->device(), byte_count(numel(), dtype()));
  return copy;
}

Tensor Tensor::detach() const { return view(*this, 0, shape()); }

Tensor slice(const Tensor& x, int64_t offset, Shape shape) {
  return record("slice", Tensor::view(x, offset, std::move(shape)), {x}, [x, offset](const Tensor& dy) {
    const Tensor whole = x.chain_buffer();
    kernels::visit_dtype(dy.dtype(), [&]<class T>(T) {
      MOTLEY_CHECK(whole.dtype() == dy.dtype(), "slice", "of a leaf in half precision is not differentiable");
      T* part = whole.pointer<T>() + offset;
      MOTLEY_RUN(dy.device(), add<T>, part, part, dy.pointer<T>(), dy.numel());
    });
  });
}

}  // namespace motley
