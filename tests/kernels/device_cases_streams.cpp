#include <algorithm>
#include <optional>

#include "kernels/device_buffer.h"
#include "kernels/device_graph.h"
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

/// Captured work, launched for one value after the other: y = 3 x by way of memory of its own, after what y was.
Outputs run_graph(const std::vector<float>& x, const Device& device) {
  const size_t bytes = x.size() * sizeof(float);
  const auto count = static_cast<int64_t>(x.size());
  const PinnedBytes in(device, bytes);
  const OnDevice<float> there(device, std::vector<float>(x.size())), y(device, std::vector<float>(x.size(), 0.0f));
  device_synchronize(device);
  const Stream stream(device);
  const StreamScope scope(stream);
  const auto work = [&] {
    copy_in_async(device, there.data(), in.data(), bytes);
    const auto doubled = allocate_on(device, bytes);
    auto* const values = static_cast<float*>(doubled.get());
    MOTLEY_DISPATCH(device, add, values, there.data(), there.data(), count);
    MOTLEY_DISPATCH(device, add, values, values, there.data(), count);
    MOTLEY_DISPATCH(device, add, y.data(), y.data(), values, count);
  };
  GraphMemory memory(device);
  std::optional<Graph> graph;
  if (device.kind != DeviceKind::cpu) graph.emplace(device, memory, work);
  for (const float factor : {1.0f, -2.0f, 4.0f}) {
    for (size_t i = 0; i < x.size(); ++i) static_cast<float*>(in.data())[i] = factor * x[i];
    graph ? graph->launch() : work();
    finish_stream(device);
  }
  device_synchronize(device);
  return {y.output("y")};
}

/// There and back by pinned pieces, in the order of two kernels between.
Outputs run_staged(const std::vector<float>& x, const Device& device) {
  const size_t bytes = x.size() * sizeof(float);
  const auto count = static_cast<int64_t>(x.size());
  const Stream stream(device);
  const StreamScope scope(stream);
  const auto there = allocate_on(device, bytes);
  auto* const values = static_cast<float*>(there.get());
  std::vector<float> here = x;
  for (int round = 0; round < 2; ++round) {
    copy_bytes(values, device, here.data(), {}, bytes);
    std::fill(here.begin(), here.end(), -1.0f);
    MOTLEY_DISPATCH(device, add, values, values, values, count);
    copy_bytes(here.data(), {}, values, device, bytes);
  }
  Output output{"x", Output::Kind::f32, std::vector<unsigned char>(bytes)};
  std::copy_n(reinterpret_cast<const unsigned char*>(here.data()), bytes, output.bytes.begin());
  device_synchronize(device);
  return {output};
}

/// Whether every element is `factor` times x's.
std::string multiple_of(const std::vector<float>& x, float factor, const Output& output) {
  const auto y = elements<float>(output);
  for (size_t i = 0; i < x.size(); ++i)
    if (y[i] != factor * x[i]) return output.name + "[" + std::to_string(i) + "] is another";
  return {};
}

}  // namespace

void add_stream_cases(std::vector<DeviceCase>& cases) {
  // Whole numbers: their sums are exact.
  std::vector<float> whole;
  for (const int64_t count : {0, 1, 1000, 300000}) {  // more than a piece of every ring
    for (int64_t i = static_cast<int64_t>(whole.size()); i < count; ++i)
      whole.push_back(static_cast<float>(i % 1000 - 300));
    const std::string name = "[" + std::to_string(count) + "]";
    cases.push_back({"staging", "fp32", name, [whole](const Device& d) { return run_staged(whole, d); },
                     [whole](const Outputs& o) { return multiple_of(whole, 4.0f, o[0]); }});
    if (count == 1 || count == 1000)
      cases.push_back({"graphs", "fp32", name, [whole](const Device& d) { return run_graph(whole, d); },
                       [whole](const Outputs& o) { return multiple_of(whole, 9.0f, o[0]); }});
  }
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
