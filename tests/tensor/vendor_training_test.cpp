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

TEST_CASE("vendor kernels: there are none on the CPU, so that the bits are the same", "[device]") {
  for (const DType output : {DType::f32, DType::bf16})
    CHECK((gradients(kCpu, DType::f32, output, true) == gradients(kCpu, DType::f32, output, false)));
}
