// What saves memory in training changes no bit: layers run again, results made again, memory handed on.
#include <catch2/catch.hpp>

#include "tensor/ops.h"
#include "tests/tensor/gradcheck.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using motley::test::normals;

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

TEST_CASE("checkpointed layers give the gradients of kept ones, bit for bit") {
  for (const DType dtype : kTypes) {
    for (const test::Variant& variant : test::kVariants) {
      INFO(kernels::dtype_name(dtype));
      const TransformerConfig config = test::tiny_model(variant);
      const kernels::NumericProfile profile = test::plain_profile(dtype);
      const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, kernels::compute_dtype(dtype));
      const PackedSequences batch = test::packed(test::tiny_sequences());
      std::vector<Values> hidden, gradients;
      for (const bool checkpointing : {false, true}) {
        Parameters parameters = Parameters::initialize(config, 3, dtype == DType::f64 ? DType::f64 : DType::f32);
        parameters.set_requires_grad(true);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
          TrainerContext context(config, parameters, profile, table);
          context.set_checkpointing(checkpointing);
          const Tensor y = trainer_hidden(config, context, batch);
          hidden.push_back(y.to_doubles());
          backward(y, normals(y.shape(), 5, y.dtype()));
        }
        gradients.push_back(test::all_gradients(parameters));
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

TEST_CASE("what was forgotten is made again with the same bits") {
  for (const DType dtype : kTypes) {
    const Tensor x = leaf({5, 6}, 1, dtype), other = leaf({5, 6}, 2, dtype), gain = leaf({6}, 3, dtype);
    for (const Tensor& y : {rms_norm(x, gain, 1e-6), silu_mul(x, other)}) {
      const Values before = y.to_doubles();
      y.forget();
      CHECK(y.to_doubles() == before);
    }
    const Tensor sum = add(x, other);
    const void* memory = sum.raw();
    sum.forget();  // cannot be made again
    CHECK(sum.raw() == memory);
    const Tensor y = silu_mul(x, other), shared = y.detach();
    memory = y.raw();
    y.forget();  // somebody else reads it
    CHECK(y.raw() == memory);
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

TEST_CASE("gated_linear_added has the bits of silu_mul and linear_added") {
  for (const DType dtype : kTypes) {
    for (const int64_t k_tile : {0, 2}) {
      INFO(kernels::dtype_name(dtype) << ", tiles of " << k_tile);
      std::vector<Values> results;
      for (const bool together : {false, true}) {
        const Tensor gate = leaf({7, 19}, 1, dtype), up = leaf({7, 19}, 2, dtype), residual = leaf({7, 3}, 3, dtype);
        const Tensor w = leaf({3, 19}, 4, dtype), g = intermediate(gate), u = intermediate(up);
        const Tensor y = together ? gated_linear_added(g, u, w, residual, k_tile)
                                  : linear_added(silu_mul(g, u), w, residual, k_tile);
        backward(y, normals(y.shape(), 5, dtype));
        for (const Tensor& t : {y, gate.grad(), up.grad(), residual.grad(), w.grad()})
          results.push_back(t.to_doubles());
      }
      for (size_t i = 0; i < 5; ++i) CHECK(results[i] == results[i + 5]);
    }
  }
  const Tensor x = leaf({2, 5}, 1, DType::f32), w = leaf({3, 5}, 2, DType::f32), good = leaf({2, 3}, 3, DType::f32);
  CHECK_THROWS_AS(gated_linear_added(x, leaf({2, 4}, 1, DType::f32), w, good), ContractError);
  CHECK_THROWS_AS(gated_linear_added(x, x, w, leaf({3, 3}, 3, DType::f32)), ContractError);
}

TEST_CASE("a zeroed gradient is zero to every reader, and chains start again from it") {
  const Tensor w = leaf({3, 5}, 1, DType::f32);
  const Tensor x = normals({4, 5}, 2, DType::f32), dy = normals({4, 3}, 3, DType::f32);
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
  Tensor gain = leaf({5}, 5, DType::f32);  // whose chain is continued, not set
  const auto norm = [&] { backward(rms_norm(x, gain, 1e-6), normals({4, 5}, 6, DType::f32)); };
  norm();
  const Values gain_once = gain.grad().to_doubles();
  gain.zero_grad();
  norm();
  CHECK(gain.grad().to_doubles() == gain_once);
  handle.zero_grad();
  const std::vector<int32_t> ids{1, 1};
  backward(embedding(w, ids), normals({2, 5}, 4, DType::f32));
  Values rows = w.grad().to_doubles();
  handle.zero_grad();
  backward(linear(Tensor::empty({0, 5}, DType::f32), w), Tensor::empty({0, 3}, DType::f32));
  CHECK(w.grad().to_doubles() == zeros);
  CHECK(rows != zeros);
}
