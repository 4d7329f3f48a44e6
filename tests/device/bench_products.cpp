// Products of linear layers by weights of every kind, for decoding rows and for a prompt's: the chain with the CPU's
// bits, the one on matrix units, and for bf16 cuBLASLt's. The weights are larger than a second-level cache, but for
// four bits.
#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"
#include "kernels/matmul.h"
#include "kernels/packed_device.h"
#include "kernels/quantize.h"
#include "kernels/vendor.h"
#include "tests/device/bench.h"
#include "tests/kernels/values.h"

namespace motley::device_bench {

using namespace kernels;

void products(const Setting& setting, const Report& report) {
  const int64_t outputs = setting.tiny ? 48 : 16384, inputs = setting.tiny ? 64 : 8192;
  const std::vector<int64_t> batches =
      setting.tiny ? std::vector<int64_t>{1, 16} : std::vector<int64_t>{1, 16, 64, 256, 4096};
  constexpr int64_t kMostForTheChain = 256;  // rows: a prompt would take it seconds
  const std::vector<float> weights = values<float>(outputs * inputs, 2);
  const std::pair<const char*, Quantization> kinds[] = {{"bf16", {Format::bf16, Scaling::none}},
                                                        {"fp8", {Format::e4m3, Scaling::channel}},
                                                        {"mxfp8", {Format::e4m3, Scaling::mx32}},
                                                        {"nvfp4", {Format::e2m1, Scaling::nv16}}};
  const double peak = setting.card != nullptr ? setting.card->bf16 : 0.0;  // all rows are bf16
  // What `automatic` chooses between is timed for itself, on the one architecture that has both.
  const bool wgmma = setting.device.kind == DeviceKind::cuda && cuda::compute_capability() == 90;
  for (const auto& kind : kinds) {
    const Quantization& how = kind.second;
    const PackedMatrix packed = pack(quantize(weights, outputs, inputs, how));
    const PackedOnDevice on = copied_to(setting.device, packed);
    std::shared_ptr<const bf16> plain;  // for cuBLASLt
    if (how.scaling == Scaling::none && setting.device.kind == DeviceKind::cuda)
      plain = copied_to(setting.device, std::vector<bf16>(weights.begin(), weights.end()).data(), weights.size());
    for (const int64_t rows : batches) {
      const auto x =
          copied_to(setting.device, values<bf16>(rows * inputs, 1).data(), static_cast<size_t>(rows * inputs));
      const auto y = allocate_on(setting.device, static_cast<size_t>(rows * outputs) * sizeof(bf16));
      MatmulArgs args;
      args.a = row_major(static_cast<const void*>(x.get()), DType::bf16, rows, inputs);
      args.packed_codes = on.view;
      args.c = row_major(y.get(), DType::bf16, rows, outputs);
      Row vendor;
      const auto add = [&](const char* body, const std::function<void()>& call) {
        Row row{"products", std::string(body) + ", " + kind.first + " weights, rows " + std::to_string(rows)};
        row.seconds = seconds_of(setting, call);
        row.flop = 2.0 * static_cast<double>(rows) * static_cast<double>(outputs * inputs);
        row.bytes = static_cast<double>(packed.bytes()) + 2.0 * static_cast<double>(rows * (outputs + inputs));
        row.peak_tflops = peak;
        if (vendor.seconds > 0) row.against = "cuBLASLt", row.ratio = vendor.seconds / row.seconds;
        report(row);
        return row;
      };
      MatmulArgs by_vendor = args;
      by_vendor.packed_codes = {};
      by_vendor.b = row_major(static_cast<const void*>(plain.get()), DType::bf16, outputs, inputs);
      if (plain != nullptr && cuda::vendor_matmul(by_vendor))
        vendor = add("cuBLASLt", [&] { cuda::vendor_matmul(by_vendor); });
      add("matrix units",
          [&] { setting.device.kind == DeviceKind::cuda ? cuda::matmul_units(args) : emulated::matmul_units(args); });
      if (rows >= 256 && wgmma) {
        add("mma.sync", [&] { cuda::matmul_units(args, UnitTiling::wide); });
        add("wgmma", [&] { cuda::matmul_units(args, UnitTiling::warpgroup); });
      }
      if (rows <= kMostForTheChain) add("chain", [&] { MOTLEY_RUN(setting.device, matmul, args); });
    }
  }
}

}  // namespace motley::device_bench
