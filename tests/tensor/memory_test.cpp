// What saves memory and time in training changes no bit: layers run again, memory handed on, ops by blocks of rows.
#include <catch2/catch.hpp>

#include "kernels/parallel.h"
#include "tensor/ops.h"
#include "tests/tensor/gradcheck.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using namespace motley::test;

namespace {

using Values = std::vector<double>;

Tensor leaf(Shape shape, uint64_t seed, DType dtype) {
  Tensor x = normals(std::move(shape), seed, dtype);
  x.set_requires_grad(true);
  return x;
}
/// An intermediate result with x's values: its gradient has its own type.
Tensor intermediate(const Tensor& x) { return add(x, Tensor::zeros(x.shape(), x.dtype())); }

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

}  // namespace

TEST_CASE("checkpointed layers give the gradients of kept ones, bit for bit", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  for (const DType dtype : kTypes) {
    for (const Variant& variant : kVariants) {
      if (sized(device, false, dtype != DType::bf16 || variant.qk_norm == variant.tied_head)) continue;
      INFO(kernels::dtype_name(dtype));
      const TransformerConfig config = tiny_model(variant);
      const kernels::NumericProfile profile = plain_profile(dtype);
      const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, kernels::compute_dtype(dtype),
                            device);
      const PackedSequences batch = packed(tiny_sequences());
      std::vector<Values> hidden, gradients;
      for (const bool checkpointing : {false, true}) {
        Parameters parameters =
            Parameters::initialize(config, 3, dtype == DType::f64 ? DType::f64 : DType::f32).clone(device);
        parameters.set_requires_grad(true);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
          TrainerContext context(config, parameters, profile, table);
          context.set_checkpointing(checkpointing);
          const Tensor y = trainer_hidden(config, context, batch);
          hidden.push_back(y.to_doubles());
          backward(y, normals(y.shape(), 5, y.dtype()).to(device));
        }
        gradients.push_back(all_gradients(parameters));
      }
      CHECK(hidden[0] == hidden[2]);
      CHECK(gradients[0] == gradients[1]);
      CHECK(gradients[0] != Values(gradients[0].size(), 0.0));
    }
  }
}

TEST_CASE("a checkpoint runs its body again in backward, and not without gradients") {
  int runs = 0;
  const auto square = [&runs](const Tensor& x) {
    ++runs;
    return mul(x, x);
  };
  const Tensor x = leaf({4}, 1, DType::f64);
  const Tensor y = checkpoint(mul(x, x), square);
  CHECK(runs == 1);
  backward(y, normals({4}, 2, DType::f64));
  CHECK(runs == 2);
  const Tensor plain = leaf({4}, 1, DType::f64), inner = mul(plain, plain);
  backward(mul(inner, inner), normals({4}, 2, DType::f64));
  CHECK(x.grad().to_doubles() == plain.grad().to_doubles());

  const NoGrad off;
  CHECK(!checkpoint(x, square).requires_grad());
  CHECK(runs == 3);
}

TEST_CASE("a checkpoint within a checkpoint, and a body that refuses") {
  const Tensor x = leaf({3}, 1, DType::f64), plain = leaf({3}, 1, DType::f64), dy = normals({3}, 2, DType::f64);
  const auto square = [](const Tensor& v) { return mul(v, v); };
  backward(checkpoint(x, [&](const Tensor& v) { return square(checkpoint(square(v), square)); }), dy);
  backward(square(square(square(plain))), dy);
  CHECK(x.grad().to_doubles() == plain.grad().to_doubles());
  CHECK_THROWS_AS(checkpoint(x, [](const Tensor& v) { return v; }), ContractError);
}

TEST_CASE("a checkpoint adds up its input's gradient in the input's own type") {
  const auto body = [](const Tensor& v) { return add(mul(v, mul(v, v)), v); };
  for (const DType dtype : kTypes) {
    const Tensor x = leaf({64}, 1, dtype), plain = leaf({64}, 1, dtype), dy = normals({64}, 2, dtype);
    backward(checkpoint(intermediate(x), body), dy);
    backward(body(intermediate(plain)), dy);
    CHECK(x.grad().to_doubles() == plain.grad().to_doubles());
  }
}

TEST_CASE("rotation in place has the bits of rotation, and takes only memory that is free") {
  const std::vector<int32_t> positions{0, 3, 1};
  const RopeTable table(4, 6, 100.0, DType::f32);
  const Tensor x = leaf({3, 12}, 1, DType::f32), y = leaf({3, 12}, 1, DType::f32), dy = normals({3, 12}, 2, DType::f32);
  const Tensor rotated = rope(intermediate(x), positions, 2, table);
  Tensor given = intermediate(y);
  const void* memory = given.raw();
  const Tensor kept = given;
  const Tensor in_place = rope_in_place(std::move(given), positions, 2, table);
  CHECK(in_place.raw() == memory);
  CHECK(in_place.to_doubles() == rotated.to_doubles());
  CHECK_THROWS_AS(kept.raw(), ContractError);
  backward(rotated, dy);
  backward(in_place, dy);
  CHECK(x.grad().to_doubles() == y.grad().to_doubles());

  const Values before = x.to_doubles();
  CHECK(rope_in_place(x, positions, 2, table).raw() != x.raw());  // a leaf
  CHECK(x.to_doubles() == before);
  const Tensor sum = intermediate(x), view = sum.reshape({36});
  CHECK(rope_in_place(sum, positions, 2, table).raw() != view.raw());
  CHECK(view.to_doubles() == before);
}

TEST_CASE("linear_added and gradients that grow in place have the bits of the separate ops") {
  for (const DType dtype : kTypes) {
    INFO(kernels::dtype_name(dtype));
    std::vector<Values> results;
    for (const bool together : {false, true}) {
      const Tensor x = leaf({7, 5}, 1, dtype), residual = leaf({7, 3}, 2, dtype);
      const Tensor w = leaf({3, 5}, 3, dtype), w2 = leaf({3, 5}, 4, dtype);
      const Tensor input = intermediate(x);
      const Tensor y = together ? linear_added(input, w, residual)
                                : add(residual, linear(intermediate(input), w));  // its gradient comes by add_grad
      const Tensor z = linear(input, w2);  // reaches `input` first: then y's gradient is added to it, in place
      const Tensor all = add(y, z);
      backward(all, normals(all.shape(), 5, dtype));
      for (const Tensor& t : {y, x.grad(), residual.grad(), w.grad(), w2.grad()}) results.push_back(t.to_doubles());
    }
    for (size_t i = 0; i < 5; ++i) CHECK(results[i] == results[i + 5]);
  }
  std::vector<Values> results;  // of a residual that is the input too: its gradient is dy itself when the product comes
  for (const bool together : {false, true}) {
    const Tensor x = leaf({7, 5}, 1, DType::f32), w = leaf({5, 5}, 2, DType::f32);
    const Tensor input = intermediate(x);
    const Tensor y =
        intermediate(together ? linear_added(input, w, input) : add(intermediate(input), linear(input, w)));
    backward(y, normals(y.shape(), 3, DType::f32));
    for (const Tensor& t : {y, x.grad(), w.grad()}) results.push_back(t.to_doubles());
  }
  for (size_t i = 0; i < 3; ++i) CHECK(results[i] == results[i + 3]);
  const Tensor x = leaf({2, 5}, 1, DType::f32), w = leaf({3, 5}, 2, DType::f32);
  CHECK_THROWS_AS(linear_added(x, w, leaf({2, 4}, 3, DType::f32)), ContractError);
  CHECK_THROWS_AS(linear_added(x, w, leaf({2, 3}, 3, DType::bf16)), ContractError);
}

namespace {

/// Result and gradients of a layer's second half after two micro-batches, in one op or in its parts.
std::vector<Values> feed_forward_results(DType dtype, int64_t rows, int64_t k_tile, bool together) {
  const FeedForward layer{
      leaf({19}, 1, dtype), leaf({40, 19}, 2, dtype), leaf({40, 19}, 3, dtype), leaf({19, 40}, 4, dtype), 1e-3, k_tile};
  std::vector<Values> results;
  for (uint64_t batch = 0; batch < 2; ++batch) {
    const Tensor input = leaf({rows, 19}, 5 + batch, dtype), x = intermediate(input);
    Tensor y;
    if (together) {
      y = feed_forward(x, layer);
    } else {
      const Tensor n = rms_norm(x, layer.gain, layer.eps);
      const Tensor gate = linear(n, layer.gate, k_tile), up = linear(n, layer.up, k_tile);
      y = linear_added(silu_mul(gate, up), layer.down, x, k_tile);
    }
    backward(y, normals(y.shape(), 7 + batch, dtype));
    for (const Tensor& t : {y, input.grad()}) results.push_back(t.to_doubles());
  }
  for (const Tensor& weight : {layer.gain, layer.gate, layer.up, layer.down})
    results.push_back(weight.grad().to_doubles());
  return results;
}

}  // namespace

TEST_CASE("feed_forward has the bits of its parts, in any number of blocks and threads") {
  for (const DType dtype : kTypes) {
    for (const int64_t rows : {1, 128, 300}) {
      for (const int64_t k_tile : {0, 8}) {
        INFO(kernels::dtype_name(dtype) << ", " << rows << " rows, tiles of " << k_tile);
        const std::vector<Values> parts = feed_forward_results(dtype, rows, k_tile, false);
        for (const int threads : {1, 2}) {
          kernels::set_compute_threads(threads);
          CHECK(feed_forward_results(dtype, rows, k_tile, true) == parts);
        }
        kernels::set_compute_threads(1);
      }
    }
  }
}

TEST_CASE("feed_forward leaves out what wants no gradient, keeps no history without, and takes no rows") {
  FeedForward layer{leaf({6}, 1, DType::f32), leaf({8, 6}, 2, DType::f32), leaf({8, 6}, 3, DType::f32),
                    leaf({6, 8}, 4, DType::f32)};
  const Tensor x = leaf({3, 6}, 5, DType::f32), dy = normals({3, 6}, 6, DType::f32);
  backward(feed_forward(x, layer), dy);
  const Values up = layer.up.grad().to_doubles();
  for (Tensor* weight : {&layer.gain, &layer.gate, &layer.down, &layer.up}) weight->zero_grad();
  for (Tensor* weight : {&layer.gain, &layer.gate, &layer.down}) weight->set_requires_grad(false);
  backward(feed_forward(x.detach(), layer), dy);
  CHECK(layer.up.grad().to_doubles() == up);
  CHECK(!layer.gate.grad().defined());
  layer.up.zero_grad();
  const Tensor none = feed_forward(normals({0, 6}, 7, DType::f32), layer);
  CHECK(none.shape() == Shape{0, 6});
  backward(none, Tensor::zeros({0, 6}, DType::f32));
  CHECK(layer.up.grad_buffer().to_doubles() == Values(48, 0.0));
  const NoGrad off;
  CHECK(!feed_forward(x, layer).requires_grad());
}

namespace {

/// Three products of one norm, the middle one perhaps unused, whose input has another use before and after.
std::vector<Values> normed_linears_results(DType dtype, int64_t rows, bool together, bool all_used) {
  const NormedLinears layer{
      leaf({19}, 1, dtype), {leaf({16, 19}, 2, dtype), leaf({5, 19}, 3, dtype), leaf({7, 19}, 4, dtype)}, 1e-3, 8};
  std::vector<Values> results;
  for (uint64_t batch = 0; batch < 2; ++batch) {
    const Tensor input = leaf({rows, 19}, 5 + batch, dtype), x = intermediate(input);
    std::vector<Tensor> y;
    if (together) {
      y = normed_linears(x, layer);
    } else {
      const Tensor n = rms_norm(x, layer.gain, layer.eps);
      for (const Tensor& weight : layer.weights) y.push_back(linear(n, weight, layer.k_tile));
    }
    const Tensor other = mul(x, x);  // its gradient comes first
    Tensor total = add(sum(mul(y[0], y[0])), sum(mul(y[2], y[2])));
    if (all_used) total = add(total, sum(mul(y[1], y[1])));
    total = add(total, sum(other));
    backward(total, normals({1}, 7 + batch, total.dtype()));
    for (const Tensor& t : {y[0], y[1], y[2], input.grad()}) results.push_back(t.to_doubles());
  }
  for (const Tensor& weight : {layer.gain, layer.weights[0], layer.weights[1], layer.weights[2]})
    results.push_back(weight.grad().defined() ? weight.grad().to_doubles() : Values());
  return results;
}

}  // namespace

TEST_CASE("normed_linears has the bits of its parts, in any number of blocks and threads") {
  for (const DType dtype : kTypes) {
    for (const int64_t rows : {1, 128, 300}) {
      for (const bool all_used : {true, false}) {
        INFO(kernels::dtype_name(dtype) << ", " << rows << " rows, all used: " << all_used);
        const std::vector<Values> parts = normed_linears_results(dtype, rows, false, all_used);
        for (const int threads : {1, 2}) {
          kernels::set_compute_threads(threads);
          CHECK(normed_linears_results(dtype, rows, true, all_used) == parts);
        }
        kernels::set_compute_threads(1);
      }
    }
  }
}

TEST_CASE("normed_linears without history, without rows, and with operands that do not fit") {
  const NormedLinears layer{leaf({6}, 1, DType::f32), {leaf({4, 6}, 2, DType::f32)}};
  const std::vector<Tensor> none = normed_linears(leaf({0, 6}, 3, DType::f32), layer);
  CHECK(none[0].shape() == Shape{0, 4});
  backward(none[0], Tensor::zeros({0, 4}, DType::f32));
  CHECK(layer.weights[0].grad_buffer().to_doubles() == Values(24, 0.0));
  CHECK_THROWS_AS(normed_linears(layer.gain, layer), ContractError);
  CHECK_THROWS_AS(normed_linears(leaf({2, 5}, 3, DType::f32), layer), ContractError);
  CHECK_THROWS_AS(normed_linears(leaf({2, 6}, 3, DType::bf16), layer), ContractError);
  CHECK_THROWS_AS(normed_linears(leaf({2, 6}, 3, DType::f32), {layer.gain, {leaf({4, 5}, 2, DType::f32)}}),
                  ContractError);
  CHECK_THROWS_AS(normed_linears(leaf({2, 6}, 3, DType::f32), {layer.gain, {leaf({4, 6}, 2, DType::f64)}}),
                  ContractError);
  const NoGrad off;
  CHECK(!normed_linears(leaf({2, 6}, 3, DType::f32), layer)[0].requires_grad());
}

TEST_CASE("feed_forward refuses operands that do not fit") {
  const Tensor x = leaf({3, 6}, 1, DType::f32), gain = leaf({6}, 2, DType::f32), in = leaf({8, 6}, 3, DType::f32);
  const Tensor out = leaf({6, 8}, 4, DType::f32);
  CHECK_THROWS_AS(feed_forward(gain, {gain, in, in, out}), ContractError);
  CHECK_THROWS_AS(feed_forward(x, {leaf({5}, 2, DType::f32), in, in, out}), ContractError);
  CHECK_THROWS_AS(feed_forward(x, {leaf({6}, 2, DType::bf16), in, in, out}), ContractError);
  CHECK_THROWS_AS(feed_forward(x, {gain, in, leaf({7, 6}, 3, DType::f32), out}), ContractError);
  CHECK_THROWS_AS(feed_forward(x, {gain, in, in, in}), ContractError);
  CHECK_THROWS_AS(feed_forward(x, {gain, in, in, leaf({6, 8}, 4, DType::f64)}), ContractError);
}

TEST_CASE("a zeroed gradient is zero to every reader, and chains start again from it", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const auto leaf_on = [&](Shape shape, uint64_t seed) {
    Tensor x = normals(std::move(shape), seed, DType::f32).to(device);
    x.set_requires_grad(true);
    return x;
  };
  const Tensor w = leaf_on({3, 5}, 1);
  const Tensor x = normals({4, 5}, 2, DType::f32).to(device), dy = normals({4, 3}, 3, DType::f32).to(device);
  const auto step = [&] { backward(linear(x, w), dy); };
  step();
  const Values once = w.grad().to_doubles(), zeros(once.size(), 0.0);
  step();
  CHECK(w.grad().to_doubles() != once);
  Tensor handle = w;
  handle.zero_grad();
  handle.zero_grad();
  CHECK(w.grad().to_doubles() == zeros);
  step();
  CHECK(w.grad().to_doubles() == once);
  handle.zero_grad();
  step();  // without a reader in between
  CHECK(w.grad().to_doubles() == once);
  handle.zero_grad();
  CHECK(w.grad_buffer().to_doubles() == zeros);
  handle.zero_grad();
  w.add_grad(w.detach());
  CHECK(w.grad().to_doubles() == w.to_doubles());
  Tensor gain = leaf_on({5}, 5);  // whose chain is continued, not set
  const auto norm = [&] { backward(rms_norm(x, gain, 1e-6), normals({4, 5}, 6, DType::f32).to(device)); };
  norm();
  const Values gain_once = gain.grad().to_doubles();
  gain.zero_grad();
  norm();
  CHECK(gain.grad().to_doubles() == gain_once);
  handle.zero_grad();
  const std::vector<int32_t> ids{1, 1};
  backward(embedding(w, ids), normals({2, 5}, 4, DType::f32).to(device));
  Values rows = w.grad().to_doubles();
  handle.zero_grad();
  backward(linear(Tensor::empty({0, 5}, DType::f32, device), w), Tensor::empty({0, 3}, DType::f32, device));
  CHECK(w.grad().to_doubles() == zeros);
  CHECK(rows != zeros);
}
