#include "tensor/ops.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/tensor/op_cases.h"

using namespace motley;
using namespace motley::test;
using kernels::Format;
using Values = std::vector<double>;

TEST_CASE("every op's gradient agrees with finite differences", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  uint64_t seed = 100;
  for (const OpCase& each : op_cases()) {
    INFO(each.name);
    std::vector<Tensor> inputs;
    for (const Shape& shape : each.shapes) inputs.push_back(normals(shape, ++seed));
    check_jacobian(each.f, inputs, device);
  }
}

TEST_CASE("a cast master's gradient agrees with finite differences", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  // fp32 masters cast up, as in a float64 run: the step must be one that fp32 holds.
  Tensor x = constant({1.0, -2.0, 0.5}, {3}, DType::f32).to(device);
  x.set_requires_grad(true);
  const Tensor wide = cast(x, DType::f64), y = mul(wide, wide);
  backward(y, constant({1.0, 1.0, 1.0}, {3}).to(device));
  CHECK(x.grad().to_doubles() == Values{2.0, -4.0, 1.0});
}

TEST_CASE("the head's gradient agrees with finite differences", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const auto operands = [](uint64_t seed) { return std::vector{normals({3, 5}, seed), normals({9, 5}, seed + 1)}; };
  for (const auto& query : {full_query(), replayed_query()}) {
    check_jacobian([&](const auto& x) { return head_values(x, query); }, operands(1), device);
    check_jacobian([&](const auto& x) { return selected_log_probs(x[0], x[1], query).log_p; }, operands(1), device);
    check_jacobian([&](const auto& x) { return selected_log_probs(x[0], x[1], query).entropy; }, operands(3), device);
  }
}

TEST_CASE("the head agrees with a plain softmax", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const Tensor hidden = normals({3, 5}, 1), weight = normals({9, 5}, 2);
  for (const auto& query : {full_query(), replayed_query()}) {
    const HeadResult result = selected_log_probs(hidden.to(device), weight.to(device), query);
    const Values log_ps = result.log_p.to_doubles(), log_outsides = result.log_outside.to_doubles();
    const Values entropies = result.entropy.to_doubles(), lses = result.lse.to_doubles();
    size_t at = 0;
    for (size_t row = 0; row < 3; ++row) {
      std::vector<int32_t> support{0, 1, 2, 3, 4, 5, 6, 7, 8};
      if (!query->candidate_offsets.empty()) {
        support.assign(query->candidate_ids.begin() + query->candidate_offsets[row],
                       query->candidate_ids.begin() + query->candidate_offsets[row + 1]);
      }
      std::map<int32_t, double> logits;
      double total = 0.0, entropy = 0.0, outside = 1.0;
      for (const int32_t id : support) {
        for (int64_t i = 0; i < 5; ++i) {
          logits[id] += hidden.data<double>()[static_cast<int64_t>(row) * 5 + i] * weight.data<double>()[id * 5 + i] /
                        query->temperature;
        }
        total += std::exp(logits[id]);
      }
      for (const int32_t id : support) entropy -= std::exp(logits[id]) / total * (logits[id] - std::log(total));
      for (; at < static_cast<size_t>(query->selected_offsets[row + 1]); ++at) {
        const double log_p = logits.at(query->selected_ids[at]) - std::log(total);
        outside -= std::exp(log_p);
        CHECK(log_ps[at] == Approx(log_p).epsilon(1e-12));
      }
      // A difference of probabilities of order one: absolute error, a few eps.
      CHECK(std::exp(log_outsides[row]) == Approx(outside).margin(1e-14));
      CHECK(entropies[row] == Approx(entropy).epsilon(1e-12));
      CHECK(lses[row] == Approx(std::log(total)).epsilon(1e-12));
    }
  }
}

TEST_CASE("the head propagates both cotangents at once", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor hidden = normals({3, 5}, 1).to(device), weight = normals({9, 5}, 2).to(device);
  hidden.set_requires_grad(true);
  weight.set_requires_grad(true);
  const Tensor d_log_p = normals({4}, 3).to(device), d_entropy = normals({3}, 4).to(device);
  const auto gradients = [&](auto&& run) {
    hidden.zero_grad();
    weight.zero_grad();
    run();
    Values all = hidden.grad().to_doubles();
    const Values more = weight.grad().to_doubles();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Values apart = gradients([&] {
    const HeadResult first = selected_log_probs(hidden, weight, full_query());
    backward(first.log_p, d_log_p);
    CHECK_THROWS_AS(backward(first.entropy, d_entropy), ContractError);
    backward(selected_log_probs(hidden, weight, full_query()).entropy, d_entropy);
  });
  const Values together =
      gradients([&] { head_backward(selected_log_probs(hidden, weight, full_query()), d_log_p, d_entropy); });
  CHECK(relative_error(together, apart) < 1e-14);
  const Values only_log_p =
      gradients([&] { head_backward(selected_log_probs(hidden, weight, full_query()), d_log_p, Tensor()); });
  const Values plain = gradients([&] { backward(selected_log_probs(hidden, weight, full_query()).log_p, d_log_p); });
  CHECK(only_log_p == plain);
  const HeadResult result = selected_log_probs(hidden, weight, full_query());
  CHECK_THROWS_AS(head_backward(result, d_entropy, Tensor()), ContractError);
  CHECK_THROWS_AS(head_backward(result, d_log_p, d_log_p), ContractError);
}

TEST_CASE("the head without a weight that wants a gradient", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor hidden = normals({3, 5}, 1).to(device);
  hidden.set_requires_grad(true);
  const Tensor weight = normals({9, 5}, 2).to(device);
  backward(selected_log_probs(hidden, weight, full_query()).log_p, normals({4}, 3).to(device));
  CHECK_FALSE(weight.grad().defined());
  CHECK(relative_error(hidden.grad().to_doubles(), Values(15, 1e-9)) > 1.0);
}

TEST_CASE("the head refuses ids that it cannot answer for") {
  const Tensor hidden = normals({3, 5}, 1), weight = normals({9, 5}, 2);
  const auto refused = [&](auto&& change) {
    auto query = replayed_query();
    change(*query);
    CHECK_THROWS_AS(selected_log_probs(hidden, weight, query), ContractError);
  };
  refused([](HeadQuery& q) { q.selected_ids[0] = 9; });
  refused([](HeadQuery& q) { q.selected_ids[0] = -1; });
  refused([](HeadQuery& q) { q.selected_ids[0] = 2; });  // no candidate of its row
  refused([](HeadQuery& q) { q.selected_ids[2] = 8; });  // twice in a row
  refused([](HeadQuery& q) { q.selected_offsets.pop_back(); });
  refused([](HeadQuery& q) { q.selected_offsets = {0, 2, 1, 4}; });
  refused([](HeadQuery& q) { q.selected_offsets = {0, 1, 1, 3}; });
  refused([](HeadQuery& q) { q.selected_offsets = {1, 1, 1, 4}; });
  refused([](HeadQuery& q) { std::swap(q.candidate_ids[0], q.candidate_ids[1]); });
  refused([](HeadQuery& q) { q.candidate_ids[7] = 9; });
  refused([](HeadQuery& q) { q.candidate_offsets = {0, 4, 4, 8}; });  // a row without candidates
  refused([](HeadQuery& q) { q.temperature = 0.0; });
  refused([](HeadQuery& q) { q.temperature = -1.0; });
  refused([](HeadQuery& q) { q.temperature = NAN; });
  CHECK_THROWS_AS(selected_log_probs(hidden, normals({9, 4}, 2), full_query()), ContractError);
  CHECK_THROWS_AS(selected_log_probs(hidden, normals({9, 5}, 2, DType::f32), full_query()), ContractError);
}

TEST_CASE("gradients in low precision are close to those in float64", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  // Half an ulp for each rounding of an operand or result, 2^-9 for bf16, 2^-12 for fp16, 2^-25 for fp32; a chain of
  // ten of them in the norm of a whole gradient.
  const std::vector<std::pair<DType, double>> types{
      {DType::f32, 10 * 0x1p-25}, {DType::f16, 10 * 0x1p-12}, {DType::bf16, 10 * 0x1p-9}};
  auto tried = op_cases();
  tried.push_back({"head", {{3, 5}, {9, 5}}, [](const auto& x) { return head_values(x, full_query()); }});
  for (const OpCase& each : tried) {
    const auto gradients = [&](DType dtype) {
      std::vector<Tensor> inputs;
      uint64_t seed = 7;
      for (const Shape& shape : each.shapes) {
        // Values that every type holds, so that inputs agree.
        const Tensor rounded = cast(cast(normals(shape, ++seed, DType::f32), DType::f16), DType::f32);
        inputs.push_back(cast(cast(rounded, DType::bf16), dtype).to(device));
        inputs.back().set_requires_grad(true);
      }
      const Tensor y = each.f(inputs);
      const Tensor dy = cast(cast(normals(y.shape(), 50, DType::f32), DType::bf16), y.dtype());
      backward(y, dy.to(device));
      Values all;
      for (const Tensor& input : inputs) {
        const Values gradient = input.grad().to_doubles();
        all.insert(all.end(), gradient.begin(), gradient.end());
      }
      return all;
    };
    const Values exact = gradients(DType::f64);
    for (const auto& [dtype, bound] : types) {
      INFO(each.name << " in " << kernels::dtype_name(dtype));
      CHECK(relative_error(gradients(dtype), exact) < bound);
    }
  }
}

TEST_CASE("rounded values pass their gradient straight through", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor x = constant({1.0, 1.06, -3.3, 500.0, 0.0}, {5}, DType::f32).to(device);
  x.set_requires_grad(true);
  const Tensor y = round_values(x, Format::e4m3, 1.0);
  CHECK(y.to_doubles() == Values{1.0, 1.0, -3.25, 448.0, 0.0});
  backward(y, constant({1.0, 2.0, 3.0, 4.0, 5.0}, {5}, DType::f32).to(device));
  CHECK(x.grad().to_doubles() == Values{1.0, 2.0, 3.0, 4.0, 5.0});
  CHECK_THROWS_AS(round_values(x, Format::e4m3, 0.0), ContractError);
}

TEST_CASE("rope rotates pairs half a head apart by position times frequency", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const RopeTable table(4, 4, 10000.0, DType::f64, device);
  const Tensor x = constant({1, 2, 3, 4, 1, 2, 3, 4}, {2, 4}).to(device);
  const Tensor y = rope(x, std::vector<int32_t>{0, 3}, 1, table);
  const Values values = y.to_doubles();
  CHECK(Values(values.begin(), values.begin() + 4) == Values{1, 2, 3, 4});
  const double slow = 3.0 / 100.0;
  CHECK(values[4] == Approx(1 * std::cos(3.0) - 3 * std::sin(3.0)).epsilon(1e-14));
  CHECK(values[5] == Approx(2 * std::cos(slow) - 4 * std::sin(slow)).epsilon(1e-14));
  CHECK(values[6] == Approx(3 * std::cos(3.0) + 1 * std::sin(3.0)).epsilon(1e-14));
  CHECK(values[7] == Approx(4 * std::cos(slow) + 2 * std::sin(slow)).epsilon(1e-14));
}

TEST_CASE("ops refuse operands that do not fit") {
  const Tensor a = normals({2, 4}, 1), b = normals({2, 3}, 2), single = normals({2, 4}, 3, DType::f32);
  CHECK_THROWS_AS(add(a, b), ContractError);
  CHECK_THROWS_AS(add(a, single), ContractError);
  CHECK_THROWS_AS(mul(a, b), ContractError);
  CHECK_THROWS_AS(silu_mul(a, b), ContractError);
  CHECK_THROWS_AS(linear(a, b), ContractError);
  CHECK_THROWS_AS(linear(a, single), ContractError);
  CHECK_THROWS_AS(rms_norm(a, normals({3}, 1), 1e-6), ContractError);
  CHECK_THROWS_AS(rms_norm(a, normals({4}, 1, DType::f32), 1e-6), ContractError);
  CHECK_THROWS_AS(embedding(a, std::vector<int32_t>{2}), ContractError);
  CHECK_THROWS_AS(embedding(a, std::vector<int32_t>{-1}), ContractError);
  CHECK_THROWS_AS(gather_rows(a, std::vector<int64_t>{2}), ContractError);
  CHECK_THROWS_AS(RopeTable(3, 5, 100.0, DType::f64), ContractError);
  const RopeTable table(3, 4, 100.0, DType::f64);
  CHECK_THROWS_AS(rope(a, std::vector<int32_t>{0, 3}, 1, table), ContractError);
  CHECK_THROWS_AS(rope(a, std::vector<int32_t>{0}, 1, table), ContractError);
  CHECK_THROWS_AS(attention(a, a, a, 3, 2, std::vector<int32_t>{0, 2}), ContractError);
  CHECK_THROWS_AS(attention(a, b, b, 2, 1, std::vector<int32_t>{0, 2}), ContractError);
  CHECK_THROWS_AS(attention(a, a, a, 1, 1, std::vector<int32_t>{0, 1}), ContractError);
  CHECK_THROWS_AS(attention(a, a, a, 1, 1, std::vector<int32_t>{0, 2, 1, 2}), ContractError);
  CHECK_THROWS_AS(attention(a, a, a, 1, 1, std::vector<int32_t>{}), ContractError);
}

TEST_CASE("ops of no rows", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Tensor weight = normals({3, 4}, 1).to(device);
  weight.set_requires_grad(true);
  const Tensor none = embedding(weight, {});
  CHECK(none.shape() == Shape{0, 4});
  const Tensor y = linear(rms_norm(none, normals({4}, 2).to(device), 1e-6), weight);
  CHECK(y.shape() == Shape{0, 3});
  backward(y, Tensor::zeros({0, 3}, DType::f64, device));
  CHECK(weight.grad_buffer().to_doubles() == Values(12, 0.0));
  CHECK(attention(none, none, none, 1, 1, std::vector<int32_t>{0}).numel() == 0);
}
