// Tensors of other devices: a device's kernels, or the CUDA source on the host, must give the CPU's bits.
#include <catch2/catch.hpp>

#include "kernels/device_memory.h"
#include "tensor/model_file.h"
#include "tests/tensor/op_cases.h"

using namespace motley;
using namespace motley::test;
using Catch::Contains;
using Values = std::vector<double>;

namespace {

const Device kDevice{kernels::DeviceKind::emulated, 0};
const DType kTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases = op_cases();
  cases.push_back({"head", {{3, 5}, {9, 5}}, [](const auto& x) { return head_values(x, full_query()); }});
  cases.push_back(
      {"head over candidates", {{3, 5}, {9, 5}}, [](const auto& x) { return head_values(x, replayed_query()); }});
  return cases;
}

/// Fingerprints of an op's result and of its operands' gradients.
std::vector<uint64_t> run_on(const Device& device, const OpCase& each, DType dtype) {
  std::vector<Tensor> inputs;
  uint64_t seed = 7;
  for (const Shape& shape : each.shapes) {
    inputs.push_back(normals(shape, ++seed, dtype).to(device));
    inputs.back().set_requires_grad(true);
  }
  const Tensor y = each.f(inputs);
  CHECK(y.device() == device);
  backward(y, normals(y.shape(), 50, y.dtype()).to(device));
  std::vector<uint64_t> prints{fingerprint(y)};
  for (const Tensor& input : inputs) {
    CHECK(input.grad().device() == device);
    prints.push_back(fingerprint(input.grad()));
  }
  return prints;
}

}  // namespace

TEST_CASE("every op has the CPU's bits on the other device", "[device]") {
  const Device there = other_device();
  int compared = 0;
  for (const OpCase& each : all_cases()) {
    for (const DType dtype : kTypes) {
      if (enough(compared++)) return;
      INFO(each.name << " in " << kernels::dtype_name(dtype));
      CHECK(run_on(there, each, dtype) == run_on(kCpu, each, dtype));
    }
  }
}

TEST_CASE("a tensor goes to a device and comes back", "[device]") {
  const Device there = other_device();
  const Values values{1.0, -2.5, 0.0, 3.0, 9984.0, -0.5};
  for (const DType dtype : kTypes) {
    const Tensor x = Tensor::from(std::span<const double>(values), {2, 3}, dtype, there);
    CHECK(x.device() == there);
    CHECK(x.to_doubles() == values);
    CHECK(x.to(there).raw() == x.raw());
    CHECK(x.to(kCpu).device() == kCpu);
    CHECK(x.to(kCpu).to_doubles() == values);
    CHECK(x.clone().device() == there);
    CHECK(x.clone().raw() != x.raw());
    CHECK(x.clone(kCpu).to_doubles() == values);
    CHECK(x.detach().device() == there);
    CHECK(x.reshape({3, 2}).to_doubles() == values);
    CHECK(slice(x, 1, {2}).to_doubles() == Values{-2.5, 0.0});
    CHECK(Tensor::zeros({2, 3}, dtype, there).to_doubles() == Values(6, 0.0));
  }
  CHECK(Tensor::zeros({0, 4}, DType::f32, there).to_doubles().empty());
  CHECK(Tensor::zeros({0, 4}, DType::f32, there).to(kCpu).shape() == Shape{0, 4});
}

TEST_CASE("the gradient of a copy to a device is copied back", "[device]") {
  const Device there = other_device();
  Tensor x = normals({3, 4}, 1);
  x.set_requires_grad(true);
  const Tensor w = normals({3, 4}, 2), dy = normals({3, 4}, 3);
  backward(mul(x.to(there), w.to(there)).to(kCpu), dy);
  REQUIRE(x.grad().device() == kCpu);
  CHECK(fingerprint(x.grad()) == fingerprint(mul(w, dy)));
}

TEST_CASE("gradients are zeroed, and made, on the tensor's device", "[device]") {
  const Device there = other_device();
  Tensor x = normals({3, 4}, 1, DType::f32).to(there);
  x.set_requires_grad(true);
  backward(x.reshape({12}), normals({12}, 2, DType::f32).to(there));
  CHECK(x.grad().to_doubles() == normals({12}, 2, DType::f32).to_doubles());
  x.zero_grad();
  CHECK(x.grad().to_doubles() == Values(12, 0.0));
  x.zero_grad();
  CHECK(x.unset_chain().device() == there);
  Tensor none = Tensor::zeros({2}, DType::f32, there);
  none.set_requires_grad(true);
  CHECK(none.grad_buffer().device() == there);
}

TEST_CASE("the host cannot touch a device's memory by accident") {
  const Tensor x = Tensor::zeros({2}, DType::f32, kDevice);
  CHECK_THROWS_WITH(x.data<float>(), "data: the tensor is on emulated, out of the host's reach: copy it with to()");
  CHECK_THROWS_WITH(x.span<float>(), Contains("span: the tensor is on emulated"));
  CHECK_THROWS_AS(x.span<float>(), ContractError);
  CHECK_NOTHROW(x.pointer<float>());
  CHECK_THROWS_AS(x.pointer<double>(), ContractError);
}

TEST_CASE("ops refuse operands of two devices") {
  const Tensor here = normals({2, 4}, 1), there = here.to(kDevice), gain = normals({4}, 2);
  const std::vector<int32_t> starts{0, 2}, positions{0, 1};
  const auto refused = [](const char* op, auto&& run) {
    CHECK_THROWS_WITH(run(), Contains(op) && Contains("operands on") && Contains("cpu") && Contains("emulated"));
    CHECK_THROWS_AS(run(), ContractError);
  };
  refused("add:", [&] { return add(here, there); });
  refused("mul:", [&] { return mul(there, here); });
  refused("silu_mul:", [&] { return silu_mul(here, there); });
  refused("linear:", [&] { return linear(here, there); });
  const Tensor x32 = normals({2, 4}, 1, DType::f32), sum32 = normals({2, 2}, 3, DType::f32).to(kDevice);
  refused("linear_added:", [&] { return linear_added(x32, x32, sum32); });
  const Tensor square = normals({4, 4}, 4);
  refused("normed_linears:", [&] { return normed_linears(there, {gain, {square}})[0]; });
  refused("normed_linears:", [&] { return normed_linears(here, {gain, {square, square.to(kDevice)}})[0]; });
  refused("feed_forward:", [&] { return feed_forward(here, {gain, square, square.to(kDevice), square}); });
  refused("rms_norm:", [&] { return rms_norm(there, gain, 1e-6); });
  refused("rope:", [&] { return rope(there, positions, 1, RopeTable(2, 4, 100.0, DType::f64)); });
  refused("attention:", [&] { return attention(here, here, there, 1, 1, starts); });
  refused("attention:", [&] { return attention(there, here, here, 1, 1, starts); });
  refused("head:", [&] {
    return selected_log_probs(normals({3, 5}, 1), normals({9, 5}, 2).to(kDevice), full_query());
  });
  Tensor x = there.clone();
  x.set_requires_grad(true);
  refused("backward:", [&] {
    backward(x.reshape({8}), normals({8}, 1));
    return 0;
  });
  refused("add_grad:", [&] {
    x.add_grad(here.clone());
    return 0;
  });
}

TEST_CASE("a build or machine without a CUDA device says so when a tensor is asked for there") {
  const Device cuda{kernels::DeviceKind::cuda, kernels::cuda::device_count()};
  CHECK_THROWS_AS(Tensor::zeros({2}, DType::f32, cuda), std::runtime_error);
  CHECK_THROWS_AS(normals({2}, 1).to(cuda), std::runtime_error);
  if (!kernels::cuda::built()) CHECK_THROWS_WITH(Tensor::zeros({2}, DType::f32, cuda), Contains("built without CUDA"));
}

TEST_CASE("what a kernel wrote outside its buffer is told when the host reads") {
  const Tensor x = Tensor::zeros({2}, DType::f32, kDevice);
  // The sanitizer stops the store itself.
#if !defined(__SANITIZE_ADDRESS__)
  volatile float* const beyond = x.pointer<float>() + 2;
  const float kept = *beyond;
  *beyond = 1.0f;
  CHECK_THROWS_WITH(x.to_doubles(), Contains("outside a buffer"));
  *beyond = kept;
#endif
}
