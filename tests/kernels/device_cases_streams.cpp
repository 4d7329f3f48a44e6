#include "kernels/device_memory.h"
#include "kernels/device_stream.h"
#include "kernels/pointwise.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

/// x goes to the device by one stream, a second adds it to itself, a third fetches it; each waits for the one before.
Outputs run_chain(const std::vector<float>& x, const Device& device) {
  const size_t bytes = x.size() * sizeof(float);
  const auto count = static_cast<int64_t>(x.size());
  const PinnedBytes in(device, bytes), out(device, bytes);
  std::copy(x.begin(), x.end(), static_cast<float*>(in.data()));
  const OnDevice<float> there(device, std::vector<float>(x.size())), sum(device, std::vector<float>(x.size(), -1.0f));
  const Stream arriving(device), computing(device), leaving(device);
  Event arrived(device), computed(device);
  {
    const StreamScope scope(arriving);
    copy_in_async(device, there.data(), in.data(), bytes);
    arrived.record();
  }
  {
    const StreamScope scope(computing);
    arrived.await();
    MOTLEY_DISPATCH(device, add, sum.data(), there.data(), there.data(), count);
    MOTLEY_DISPATCH(device, add, sum.data(), sum.data(), there.data(), count);
    computed.record();
  }
  {
    const StreamScope scope(leaving);
    computed.await();
    copy_out_async(device, out.data(), sum.data(), bytes);
    finish_stream(device);
  }
  Output output{"sum", Output::Kind::f32, std::vector<unsigned char>(bytes)};
  std::copy_n(static_cast<const unsigned char*>(out.data()), bytes, output.bytes.begin());
  device_synchronize(device);
  return {output};
}

}  // namespace

void add_stream_cases(std::vector<DeviceCase>& cases) {
  for (const int64_t count : {0, 1, 1000, 100000}) {
    const std::vector<float> x = values<float>(count, 1);
    cases.push_back({"streams", "fp32", "[" + std::to_string(count) + "]",
                     [x](const Device& d) { return run_chain(x, d); },
                     [x](const Outputs& o) {
                       const auto sum = elements<float>(o[0]);
                       for (size_t i = 0; i < x.size(); ++i)
                         if (sum[i] != x[i] + x[i] + x[i]) return "sum[" + std::to_string(i) + "] is another";
                       return std::string();
                     }});
  }
}

}  // namespace motley::kernels
