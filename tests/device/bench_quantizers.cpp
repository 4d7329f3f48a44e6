// What only moves and rounds numbers, beside a plain copy of as many bytes: quantizers, conversions.
#include "kernels/device_buffer.h"
#include "kernels/pointwise.h"
#include "kernels/quantize.h"
#include "kernels/quantize_device.h"
#include "tests/device/bench.h"
#include "tests/kernels/values.h"

namespace motley::device_bench {

using namespace kernels;

void quantizers(const Setting& setting, const Report& report) {
  const Device& device = setting.device;
  const int64_t rows = setting.tiny ? 4 : 8192, cols = setting.tiny ? 128 : 4096, count = rows * cols;
  const auto numbers = static_cast<double>(count);
  const auto x = copied_to(device, values<float>(count, 1).data(), static_cast<size_t>(count));
  const auto y = allocate_on(device, static_cast<size_t>(count) * 4);
  const auto blocks = allocate_on(device, static_cast<size_t>(count) / 8);
  const auto scales = allocate_on(device, static_cast<size_t>(count / 32 + rows + 1) * 4);
  auto* const scales_there = static_cast<float*>(scales.get());
  Row copy;
  const auto add = [&](const std::string& name, double bytes, const std::function<void()>& call) {
    Row row{"quantizers", name};
    row.seconds = seconds_of(setting, call);
    row.bytes = bytes;
    if (copy.bytes > 0) {
      row.against = copy.name;
      row.ratio = bytes / row.seconds * copy.seconds / copy.bytes;
    } else {
      copy = row;
    }
    report(row);
  };
  add("copy", 8 * numbers, [&] { copy_bytes(y.get(), device, x.get(), device, static_cast<size_t>(count) * 4); });
  add("fp32 to bf16", 6 * numbers,
      [&] { MOTLEY_RUN(device, convert, y.get(), DType::bf16, x.get(), DType::f32, count); });
  const std::pair<const char*, Quantization> weights[] = {
      {"weights to fp8 by channel", {Format::e4m3, Scaling::channel}},
      {"weights to NVFP4", {Format::e2m1, Scaling::nv16}}};
  for (const auto& [name, how] : weights) {
    const QuantizeArgs args{static_cast<uint8_t*>(y.get()),
                            static_cast<uint8_t*>(blocks.get()),
                            scales_there,
                            x.get(),
                            rows,
                            cols,
                            how,
                            0.0f};
    const double codes = static_cast<double>(rows * code_bytes(how.format, cols));
    // The scale of a row or a matrix is known when all of it has been read: twice in all.
    add(name, 8 * numbers + codes, [&] { MOTLEY_RUN(device, quantize, args); });
  }
  const std::pair<const char*, Quantization> activations[] = {
      {"activations to fp8 by token", {Format::e4m3, Scaling::channel}},
      {"activations to fp8 by 128", {Format::e4m3, Scaling::block1x128}},
      {"activations to NVFP4", {Format::e2m1, Scaling::nv16}}};
  for (const auto& [name, how] : activations) {
    auto* const in_place = static_cast<float*>(y.get());
    copy_bytes(in_place, device, x.get(), device, static_cast<size_t>(count) * 4);
    const QuantizeActivationsArgs args{in_place, scales_there, scales_there + rows, rows, cols, how};
    add(name, 8 * numbers, [&] { MOTLEY_RUN(device, quantize_activations, args); });
  }
}

}  // namespace motley::device_bench
