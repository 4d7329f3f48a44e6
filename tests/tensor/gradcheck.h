// Gradient checks in float64: the Jacobian that `backward` gives against central differences, for any function of
// tensors.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/philox.h"
#include "tensor/ops.h"
#include "tests/tensor/devices.h"

namespace motley::test {

/// Reproducible normal numbers; `seed` is the only thing that tells two tensors apart.
inline Tensor normals(Shape shape, uint64_t seed, DType dtype = DType::f64, double scale = 1.0) {
  Tensor shape_of = Tensor::empty(shape, dtype);
  std::vector<double> values(static_cast<size_t>(shape_of.numel()));
  kernels::RandomStream stream({seed, kernels::Purpose::data, 0, 0});
  for (double& value : values) value = scale * stream.normal();
  return Tensor::from(std::span<const double>(values), std::move(shape), dtype);
}

inline Tensor constant(std::vector<double> values, Shape shape, DType dtype = DType::f64) {
  return Tensor::from(std::span<const double>(values), std::move(shape), dtype);
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Step of the central differences. Their error is h^2 f'''/6, about 2e-11, and eps |f| / h, about 1e-11, for values
/// and third derivatives of order one to ten: the tolerance of 1e-8 (of the largest entry, or of 1) has room for both.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-8;

/// f at copies of the operands on a device, each of which wants a gradient.
inline Tensor apply_there(const Function& f, const std::vector<Tensor>& inputs, const Device& device,
                          std::vector<Tensor>& leaves) {
  leaves.clear();
  for (const Tensor& input : inputs) {
    REQUIRE(input.dtype() == DType::f64);
    leaves.push_back(input.clone(device));
    leaves.back().set_requires_grad(true);
  }
  return f(leaves);
}

/// The norm of the difference over the norm of `reference`.
inline double relative_error(const std::vector<double>& values, const std::vector<double>& reference) {
  REQUIRE(values.size() == reference.size());
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    difference += (values[i] - reference[i]) * (values[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / norm);
}

/// Every entry of the Jacobian of f at `inputs` (float64, on the CPU): `backward` on a device against differences on
/// the CPU, of which the device's own values must be a few roundings away at most.
inline void check_jacobian(const Function& f, std::vector<Tensor> inputs, const Device& device = {}) {
  std::vector<Tensor> leaves;
  const std::vector<double> there = apply_there(f, inputs, device, leaves).to_doubles();
  REQUIRE(!there.empty());
  CHECK(relative_error(there, f(inputs).to_doubles()) < 1e-13);
  std::vector<std::vector<double>> analytic;  // [outputs][all inputs' elements]
  for (size_t j = 0; j < there.size(); ++j) {
    const Tensor y = apply_there(f, inputs, device, leaves);
    Tensor dy = Tensor::zeros(y.shape(), DType::f64, device);
    store(dy, j, 1.0);
    backward(y, dy);
    std::vector<double>& row = analytic.emplace_back();
    for (const Tensor& leaf : leaves) {
      for (const double value : leaf.grad_buffer().to_doubles()) row.push_back(value);
    }
  }
  size_t column = 0;
  double largest = 0.0, worst = 0.0;
  for (Tensor& input : inputs) {
    for (double& element : input.span<double>()) {
      const double kept = element;
      element = kept + kStep;
      const std::vector<double> above = f(inputs).to_doubles();
      element = kept - kStep;
      const std::vector<double> below = f(inputs).to_doubles();
      element = kept;
      for (size_t j = 0; j < above.size(); ++j) {
        const double numeric = (above[j] - below[j]) / (2.0 * kStep);
        largest = std::max(largest, std::abs(numeric));
        const double error = std::abs(numeric - analytic[j][column]);
        worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
      }
      ++column;
    }
  }
  INFO("largest entry " << largest << ", largest error " << worst);
  CHECK(largest > 1e-3);  // a function that ignores its inputs would pass any check
  CHECK(worst <= kTolerance * std::max(1.0, largest));
}

}  // namespace motley::test
