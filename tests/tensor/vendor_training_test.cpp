// kernels = "vendor": the fastest kernels of a device, which differ from the CPU's by roundings alone. On a GPU they
// are cuBLASLt's and cuDNN's.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/tensor/devices.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using namespace motley::test;

namespace {

std::vector<double> gradients(const Device& device, DType master, DType output, bool vendor) {
  const TransformerConfig config = tiny_model({true, true});
  Parameters parameters = Parameters::initialize(config, 3, master).clone(device);
  parameters.set_requires_grad(true);
  kernels::NumericProfile profile = plain_profile(output);
  profile.invariant = !vendor;
  const auto sequences = tiny_sequences();
  trainer_pass(config, parameters, profile, std::span(sequences).first(4));
  return all_gradients(parameters);
}

/// |got - want| / |want|.
double distance(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("vendor kernels: gradients are as near to float64 as those of the CPU's bits", "[device]") {
  const std::vector<double> exact = gradients(kCpu, DType::f64, DType::f64, false);
  int cases = 0;
  for (const DType output : {DType::bf16, DType::f16}) {
    if (enough(cases++)) continue;
    INFO(kernels::dtype_name(output));
    const std::vector<double> cpu = gradients(kCpu, DType::f32, output, false),
                              vendor = gradients(other_device(), DType::f32, output, true);
    CHECK((vendor != cpu));  // or other kernels were used
    const double error = distance(cpu, exact);
    REQUIRE(error < 0.05);
    CHECK(distance(vendor, exact) < 1.5 * error);
    CHECK(distance(vendor, cpu) < 1.5 * error);
  }
}

TEST_CASE("vendor kernels: the head's log-probabilities and gradients, at a temperature", "[device]") {
  struct Result {
    std::vector<double> log_p, entropy, dhidden, dweight;
  };
  const auto run = [](const Device& device, DType dtype, Kernels choice) {
    Tensor hidden = normals({5, 24}, 1, dtype).to(device), weight = normals({40, 24}, 2, dtype).to(device);
    hidden.set_requires_grad(true);
    weight.set_requires_grad(true);
    auto query = std::make_shared<HeadQuery>();
    query->temperature = 0.7;
    query->choice = choice;
    query->selected_offsets = {0, 1, 2, 3, 4, 5};
    query->selected_ids = {3, 39, 0, 17, 8};
    const HeadResult result = selected_log_probs(hidden, weight, query);
    head_backward(result, normals({5}, 3, kernels::compute_dtype(dtype)).to(device), {});
    return Result{result.log_p.to_doubles(), result.entropy.to_doubles(), hidden.grad_buffer().to_doubles(),
                  weight.grad_buffer().to_doubles()};
  };
  const Result exact = run(kCpu, DType::f64, Kernels::invariant);
  int cases = 0;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    if (enough(cases++)) continue;
    INFO(kernels::dtype_name(dtype));
    const Result cpu = run(kCpu, dtype, Kernels::invariant), vendor = run(other_device(), dtype, Kernels::vendor);
    // Operands are the same numbers, rounded slopes are not: two roundings to the type.
    const double rounding = dtype == DType::f32 ? 1e-6 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    CHECK(distance(vendor.log_p, cpu.log_p) < 1e-6);
    CHECK(distance(vendor.entropy, cpu.entropy) < 1e-6);
    CHECK(distance(vendor.dhidden, cpu.dhidden) < 2 * rounding);
    CHECK(distance(vendor.dweight, cpu.dweight) < 2 * rounding);
    CHECK(distance(vendor.log_p, exact.log_p) < 0.05);
  }
}

TEST_CASE("vendor kernels: there are none on the CPU, so that the bits are the same", "[device]") {
  for (const DType output : {DType::f32, DType::bf16})
    CHECK((gradients(kCpu, DType::f32, output, true) == gradients(kCpu, DType::f32, output, false)));
}
