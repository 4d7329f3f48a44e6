#include <catch2/catch.hpp>
#include <thread>

#include "tensor/ops.h"
#include "tests/tensor/gradcheck.h"

using namespace motley;
using namespace motley::test;

namespace {

Tensor vector_on(const Device& device, std::vector<double> values, DType dtype = DType::f64) {
  const auto count = static_cast<int64_t>(values.size());
  return constant(std::move(values), {count}, dtype).to(device);
}
Tensor leaf(std::vector<double> values, DType dtype = DType::f64, const Device& device = {}) {
  Tensor x = vector_on(device, std::move(values), dtype);
  x.set_requires_grad(true);
  return x;
}

Tensor ones_like(const Tensor& y) {
  return constant(std::vector<double>(static_cast<size_t>(y.numel()), 1.0), y.shape(), y.dtype()).to(y.device());
}

using Values = std::vector<double>;

}  // namespace

TEST_CASE("tensors hold, convert and share their values") {
  const Tensor x = constant({1.0, -2.5, 3.0e-3, 70000.0}, {2, 2}, DType::bf16);
  CHECK(x.dim(0) == 2);
  CHECK(x.dim(-1) == 2);
  CHECK(x.numel() == 4);
  CHECK(x.to_doubles()[0] == 1.0);
  CHECK(x.to_doubles()[3] == 70144.0);  // the nearest bf16: steps of 512 from 2^16
  CHECK_THROWS_AS(x.data<float>(), ContractError);
  CHECK_THROWS_AS(x.dim(2), ContractError);
  CHECK_THROWS_AS(x.reshape({3}), ContractError);
  CHECK_THROWS_AS(constant({1.0}, {2}), ContractError);
  CHECK_THROWS_AS(Tensor().shape(), ContractError);
  CHECK_THROWS_AS(Tensor::empty({-1}, DType::f32), ContractError);
  CHECK_THROWS_AS(Tensor::empty({INT64_MAX, 3}, DType::f32), ContractError);

  const Tensor same = x.reshape({4});
  const Tensor copy = x.clone();
  same.data<kernels::bf16>()[1] = kernels::bf16(8.0f);
  CHECK(x.to_doubles()[1] == 8.0);
  CHECK(copy.to_doubles()[1] == -2.5);
  CHECK(Tensor::zeros({0, 5}, DType::f32).numel() == 0);
  CHECK(Tensor::zeros({3}, DType::f64).to_doubles() == Values{0.0, 0.0, 0.0});
}

TEST_CASE("gradients of several uses add up", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor x = leaf({2.0, 3.0}, DType::f64, device);
  const Tensor y = add(mul(x, x), add(x, x));
  backward(y, ones_like(y));
  CHECK(x.grad().to_doubles() == Values{6.0, 8.0});
  const Tensor z = mul(x, x);
  backward(z, ones_like(z));
  CHECK(x.grad().to_doubles() == Values{10.0, 14.0});
  x.zero_grad();
  CHECK(x.grad().to_doubles() == Values{0.0, 0.0});
}

TEST_CASE("a gradient that two tensors share is not changed through one of them", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor x = leaf({1.0}, DType::f64, device), w = leaf({1.0}, DType::f64, device);
  const Tensor a = mul(x, vector_on(device, {2.0})), b = mul(w, vector_on(device, {3.0}));
  // The walk goes from the last created to the first: the sum hands one and the same gradient to a and b, then a gets
  // more from its other use.
  const Tensor other = mul(a, vector_on(device, {10.0}));
  const Tensor both = add(a, b);
  const Tensor y = add(other, both);
  backward(y, ones_like(y));
  CHECK(x.grad().to_doubles() == Values{22.0});
  CHECK(w.grad().to_doubles() == Values{3.0});

  // The same with a gradient that nobody outside the walk holds.
  x.zero_grad();
  w.zero_grad();
  const Tensor a2 = mul(x, vector_on(device, {2.0})), b2 = mul(w, vector_on(device, {3.0}));
  const Tensor other2 = mul(a2, vector_on(device, {10.0}));
  const Tensor y2 = mul(add(other2, add(a2, b2)), vector_on(device, {7.0}));
  backward(y2, ones_like(y2));
  CHECK(x.grad().to_doubles() == Values{154.0});
  CHECK(w.grad().to_doubles() == Values{21.0});

  const Tensor dy = vector_on(device, {1.0});
  const Tensor twice = add(x, x);
  x.zero_grad();
  backward(twice, dy);
  CHECK(x.grad().to_doubles() == Values{2.0});
  CHECK(dy.to_doubles() == Values{1.0});
  backward(x, dy);  // a leaf takes the gradient itself, as a copy
  CHECK(x.grad().to_doubles() == Values{3.0});
  CHECK(dy.to_doubles() == Values{1.0});
}

TEST_CASE("a leaf's gradient is that of its views and slices", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor x = leaf({1.0, 2.0, 3.0, 4.0}, DType::f64, device);
  const Tensor y = mul(slice(x, 1, {2}), vector_on(device, {5.0, 7.0}));
  backward(y, ones_like(y));
  CHECK(x.grad().to_doubles() == Values{0.0, 5.0, 7.0, 0.0});
  const Tensor z = x.reshape({2, 2});
  backward(z, ones_like(z));
  CHECK(x.grad().to_doubles() == Values{1.0, 6.0, 8.0, 1.0});
  CHECK_THROWS_AS(slice(x, 3, {2}), ContractError);
  CHECK_FALSE(x.detach().requires_grad());
}

TEST_CASE("gradient types: leaves in the compute type, results in their own", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor master = leaf({1.0, 2.0}, DType::f32, device);
  const Tensor low = cast(master, DType::bf16);
  CHECK(low.requires_grad());
  CHECK(low.grad_dtype() == DType::f32);
  // 1 + 2^-12 is no bf16: it survives only if the cast does not round the gradient.
  low.add_grad(vector_on(device, {1.0 + 0x1p-12, 3.0}, DType::f32));
  CHECK(master.grad().to_doubles() == Values{1.0 + 0x1p-12, 3.0});

  const Tensor product = mul(low, low);
  CHECK(product.grad_dtype() == DType::bf16);
  Tensor half_leaf = leaf({1.0}, DType::f16, device);
  CHECK(half_leaf.grad_dtype() == DType::f32);
  const Tensor wide = cast(master, DType::f64);
  CHECK(wide.grad_dtype() == DType::f64);
  master.zero_grad();
  backward(wide, vector_on(device, {0.5, 0.25}));
  CHECK(master.grad().to_doubles() == Values{0.5, 0.25});
  CHECK(cast(master, DType::f32).shape() == master.shape());

  Tensor overflow = leaf({1.0}, DType::f16, device);
  const Tensor doubled = add(overflow, overflow);
  const Tensor more = mul(doubled, vector_on(device, {60000.0}, DType::f16));
  backward(more, vector_on(device, {2.0}, DType::f16));
  CHECK(std::isinf(overflow.grad().to_doubles()[0]));  // the gradient of `doubled` is fp16: where overflow is seen
}

TEST_CASE("no graph without a wish for gradients") {
  Tensor x = leaf({1.0});
  {
    const NoGrad off;
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE(mul(x, x).requires_grad());
    CHECK_FALSE(cast(x, DType::f32).requires_grad());
    std::thread([] { CHECK(grad_enabled()); }).join();
  }
  CHECK(grad_enabled());
  const Tensor plain = constant({1.0}, {1});
  CHECK_FALSE(mul(plain, plain).requires_grad());
  CHECK_THROWS_AS(backward(plain, plain), ContractError);
  Tensor result = mul(x, x);
  CHECK_THROWS_AS(result.set_requires_grad(true), ContractError);
  CHECK_THROWS_AS(backward(result, constant({1.0, 1.0}, {2})), ContractError);
  CHECK_THROWS_AS(backward(result, constant({1.0}, {1}, DType::f32)), ContractError);
}

TEST_CASE("a graph is walked once", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor x = leaf({2.0}, DType::f64, device);
  const Tensor shared = mul(x, x);
  const Tensor first = add(shared, x), second = mul(shared, x);
  backward(first, ones_like(first));
  CHECK(x.grad().to_doubles() == Values{5.0});
  CHECK_THROWS_AS(backward(first, ones_like(first)), ContractError);
  CHECK_THROWS_AS(backward(second, ones_like(second)), ContractError);
  CHECK(x.grad().to_doubles() == Values{5.0});  // refused before anything was added
}

TEST_CASE("the graph is released as it is walked") {
  Tensor x = leaf({2.0});
  const auto alive = std::make_shared<int>(0);
  Tensor y = record("probe", constant({4.0}, {1}), {x}, [x, alive](const Tensor& dy) { x.add_grad(dy); });
  CHECK(alive.use_count() == 2);
  const Tensor z = mul(y, y);
  backward(z, ones_like(z));
  CHECK(alive.use_count() == 1);
  CHECK(x.grad().to_doubles() == Values{8.0});
}

TEST_CASE("graphs deeper than any stack are walked and destroyed") {
  constexpr int kDepth = 200000;
  Tensor x = leaf({1.0});
  const auto deep = [&] {
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i) y = add(y, x);
    return y;
  };
  const Tensor y = deep();
  backward(y, ones_like(y));
  CHECK(x.grad().to_doubles() == Values{kDepth + 1.0});
  const Tensor never_walked = deep();
  CHECK(never_walked.requires_grad());
}

TEST_CASE("threads walk their own graphs at the same time") {
  std::vector<std::thread> threads;
  std::vector<double> gradients(4);
  for (size_t t = 0; t < gradients.size(); ++t) {
    threads.emplace_back([&gradients, t] {
      Tensor x = leaf({static_cast<double>(t)});
      for (int i = 0; i < 200; ++i) {
        const Tensor y = mul(add(x, x), x);
        backward(y, ones_like(y));
      }
      gradients[t] = x.grad().to_doubles()[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(gradients == Values{0.0, 800.0, 1600.0, 2400.0});
}

TEST_CASE("two chains of one matrix are kept apart until they are read", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor x = Tensor::zeros({4, 1}, DType::f32, device);
  x.set_requires_grad(true);
  const auto add_rows = [&](const std::vector<int32_t>& ids, double value) {
    const Tensor::RowChain chain = x.row_chain(ids);
    Values sums = chain.sums.to_doubles();
    for (const int32_t place : chain.places) sums[static_cast<size_t>(place)] += value;
    store(chain.sums, sums);
    return chain;
  };
  store(x.chain_buffer(), 2, 1.0);
  add_rows({2, 3, 2}, 2.0);
  CHECK(x.chain_buffer().to_doubles() == Values{0.0, 0.0, 1.0, 0.0});
  const Tensor::RowChain chain = add_rows({0, 3}, 8.0);  // a second micro-batch goes on, and finds another row
  CHECK(chain.sums.to_doubles() == Values{4.0, 10.0, 8.0});
  CHECK(chain.places == std::vector<int32_t>{2, 1});
  CHECK(x.grad().to_doubles() == Values{8.0, 0.0, 5.0, 10.0});
  CHECK(x.grad().to_doubles() == Values{8.0, 0.0, 5.0, 10.0});
  CHECK(x.row_chain(std::vector<int32_t>{3}).sums.to_doubles() == Values{0.0});
  x.zero_grad();
  CHECK(x.grad_buffer().to_doubles() == Values(4, 0.0));
  add_rows({1}, 3.0);  // onto a gradient that was zeroed and has not been read
  CHECK(x.grad().to_doubles() == Values{0.0, 3.0, 0.0, 0.0});
}
