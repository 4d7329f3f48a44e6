// What takes an emulated device too long for the table of tests/kernels/device_cases.h: `make long`.
#include <catch2/catch.hpp>

#include "tests/kernels/attention_fixture.h"
#include "tests/kernels/device_cases.h"

namespace motley::kernels {

TEST_CASE("packed attention over blocks of 4096 positions has the CPU's bits on the emulated device", "[.long]") {
  Packed<float> packed({4096 + 70, 20}, 3, 1.5, {1, 1, 3});
  packed.run();
  const Device device{DeviceKind::emulated};
  const OnDevice<float> q(device, packed.q), k(device, packed.k), v(device, packed.v);
  const OnDevice<float> y(device, std::vector<float>(packed.q.size())),
      lse(device, std::vector<float>(packed.lse.size()));
  const OnDevice<int32_t> starts(device, packed.starts);
  emulated::attention<float>({y.data(), lse.data(), q.data(), k.data(), v.data(), starts.data(), packed.rows(),
                              packed.sequences(), 1, 1, 3, kScale});
  device_synchronize(device);
  CHECK(same_bits(elements<float>(y.output("y")), packed.y));
  CHECK(same_bits(elements<float>(lse.output("lse")), packed.lse));
}

}  // namespace motley::kernels
