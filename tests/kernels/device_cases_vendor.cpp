// Products by cuBLASLt. Where it is not, the device's own product stands in.
#include "kernels/device_memory.h"
#include "kernels/product_body.h"
#include "kernels/vendor.h"
#include "kernels/vendor_scales.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

void multiply(const Device& device, const MatmulArgs& args) {
  const bool there = device.kind == DeviceKind::cuda && args.a.cols > 0;
  if (!there) return compute_product(ProductBody::chain, device, args);
  if (!cuda::vendor_matmul(args)) throw std::runtime_error("cuBLASLt refused");
}

/// Quantized operands, and what each of their elements is worth.
struct CodesCase {
  VendorProduct product;
  int capability;  // from which on
  QuantizedMatrix a, b;
  std::vector<float> a_values, b_values;

  CodesCase(VendorProduct product_in, int capability_in, const Shape& s, Quantization activation, Quantization weight)
      : product(product_in),
        capability(capability_in),
        a(quantize(values<float>(s.m * s.k, 1), s.m, s.k, activation)),
        b(quantize(values<float>(s.n * s.k, 2), s.n, s.k, weight)),
        a_values(static_cast<size_t>(s.m * s.k)),
        b_values(static_cast<size_t>(s.n * s.k)) {
    dequantize(a, a_values);
    dequantize(b, b_values);
  }
  bool there(const Device& device) const {
    if (device.kind != DeviceKind::cuda) return false;
    const int has = cuda::compute_capability();
    return product == VendorProduct::fp8_blocks ? has == capability : has >= capability;
  }
};

Outputs run_codes(const CodesCase& in, const Device& device) {
  const int64_t m = in.a.rows, n = in.b.rows;
  const OnDevice<bf16> c(device, std::vector<bf16>(static_cast<size_t>(m * n), bf16(9.0f)));
  MatmulArgs args;
  args.c = row_major(static_cast<void*>(c.data()), DType::bf16, m, n);
  if (!in.there(device)) {
    const OnDevice<float> a(device, in.a_values), b(device, in.b_values);
    args.a = row_major(static_cast<const void*>(a.data()), DType::f32, m, in.a.cols);
    args.b = row_major(static_cast<const void*>(b.data()), DType::f32, n, in.a.cols);
    compute_product(ProductBody::chain, device, args);
    device_synchronize(device);
    return {c.output("c")};
  }
  const VendorBytes a = vendor_bytes(in.a, in.product), b = vendor_bytes(in.b, in.product);
  const OnDevice<uint8_t> a_codes(device, a.codes), b_codes(device, b.codes), a_scales(device, a.scales),
      b_scales(device, b.scales);
  const bool scaled = !a.scales.empty();
  std::vector<float> columns(static_cast<size_t>(n), 1.0f), rows(static_cast<size_t>(m), 1.0f);
  if (in.a.how.scaling == Scaling::channel) rows = in.a.scales;
  if (in.b.how.scaling == Scaling::channel) columns = in.b.scales;
  const OnDevice<float> column_factors(device, columns), row_factors(device, rows);
  if (in.product == VendorProduct::nvfp4) args.alpha = in.a.scales[0] * in.b.scales[0];
  if (in.product == VendorProduct::fp8) {
    args.column_factors = column_factors.data();
    args.row_factors = row_factors.data();
  }
  if (!cuda::vendor_matmul_codes(
          in.product, {a_codes.data(), scaled ? a_scales.data() : nullptr, m, in.a.cols, in.a.how.format},
          {b_codes.data(), scaled ? b_scales.data() : nullptr, n, in.a.cols, in.b.how.format}, args))
    throw std::runtime_error("cuBLASLt refused");
  device_synchronize(device);
  return {c.output("c")};
}

std::string check_codes(const CodesCase& in, const Outputs& outputs) {
  const int64_t m = in.a.rows, n = in.b.rows, depth = in.a.cols;
  const std::vector<bf16> got = elements<bf16>(outputs[0]);
  for (int64_t i = 0; i < m * n; ++i) {
    double want = 0, size = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const double term = static_cast<double>(in.a_values[i / n * depth + k]) * in.b_values[i % n * depth + k];
      want += term;
      size += std::fabs(term);
    }
    std::string wrong = beyond("c", i, real(got[i]), want, 0x1p-10 * size + unit<bf16>() * std::fabs(want));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

void add_places(std::vector<DeviceCase>& cases) {
  for (const auto& [rows, blocks] : {std::pair<int64_t, int64_t>{0, 2}, {1, 1}, {5, 3}, {64, 7}, {130, 2}}) {
    const auto run = [rows = rows, blocks = blocks](const Device& d) {
      const OnDevice<float> scales(d, values<float>(rows * blocks, 6));
      const OnDevice<float> placed(d, std::vector<float>(static_cast<size_t>(row_scale_place(0, blocks, rows)), 9.0f));
      MOTLEY_DISPATCH(d, place_row_scales, placed.data(), scales.data(), rows, blocks);
      device_synchronize(d);
      return Outputs{placed.output("placed")};
    };
    const auto check = [rows = rows, blocks = blocks](const Outputs& o) {
      const std::vector<float> got = elements<float>(o[0]), scales = values<float>(rows * blocks, 6);
      std::vector<float> want(got.size(), 1.0f);  // between them
      for (int64_t i = 0; i < rows * blocks; ++i)
        want[static_cast<size_t>(row_scale_place(i / blocks, i % blocks, rows))] = scales[static_cast<size_t>(i)];
      std::string wrong;
      for (size_t i = 0; i < got.size() && wrong.empty(); ++i)
        wrong = beyond("placed", static_cast<int64_t>(i), got[i], want[i], 0);
      return wrong;
    };
    cases.push_back({"place_row_scales", "fp32", std::to_string(rows) + " x " + std::to_string(blocks), run, check});
  }
}

void add_codes(std::vector<DeviceCase>& cases) {
  constexpr Format kE4m3 = Format::e4m3;
  const auto add = [&](const char* type, CodesCase in) {
    const auto shared = std::make_shared<const CodesCase>(std::move(in));
    cases.push_back({"vendor_matmul_codes", type, Shape{shared->a.rows, shared->b.rows, shared->a.cols}.text(),
                     [shared](const Device& d) { return run_codes(*shared, d); },
                     [shared](const Outputs& o) { return check_codes(*shared, o); }, false});
  };
  for (const Shape& s : {Shape{1, 16, 128}, {19, 144, 384}}) {
    add("fp8", {VendorProduct::fp8, 89, s, {kE4m3, Scaling::channel}, {kE4m3, Scaling::channel}});
    add("fp8 over 128",
        {VendorProduct::fp8_blocks, 90, s, {kE4m3, Scaling::block1x128}, {kE4m3, Scaling::block128x128}});
    add("mxfp8", {VendorProduct::mxfp8, 100, s, {kE4m3, Scaling::mx32}, {kE4m3, Scaling::mx32}});
    add("nvfp4", {VendorProduct::nvfp4, 100, s, {Format::e2m1, Scaling::nv16}, {Format::e2m1, Scaling::nv16}});
  }
}

}  // namespace

void add_vendor_cases(std::vector<DeviceCase>& cases) {
  const auto add = [&](DType type, const Shape& s, const std::string& what, MatmulCase in) {
    const auto shared = std::make_shared<const MatmulCase>(std::move(in));
    cases.push_back({"vendor_matmul", dtype_name(type), s.text() + what,
                     [shared](const Device& d) {
                       return run_product(*shared, d, [&](const MatmulArgs& args) { multiply(d, args); });
                     },
                     // The bound of kernels/vendor.h, and what the finish rounds.
                     [shared](const Outputs& o) {
                       return check_product(*shared, o, 2 * static_cast<double>(shared->a.view.cols) + 8);
                     },
                     false});
  };
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const Shape& s : {Shape{0, 3, 8}, {1, 1, 1}, {17, 33, 24}, {3, 40, 129}, {64, 48, 256}})
      add(type, s, "", case_of(s, type, type, type));
    const Shape s{24, 40, 72};
    add(type, s, " to fp32", case_of(s, type, type, DType::f32));
    MatmulCase more = case_of(s, type, type, DType::f32);
    more.accumulate = true;
    add(type, s, " accumulated", more);
    // Gradients take operands across their rows.
    MatmulCase turned = case_of(s, type, type, type);
    turned.a = HostMatrix(type, s.m, s.k, 1, 8, true);
    turned.b = HostMatrix(type, s.n, s.k, 2, 0, true);
    add(type, s, " transposed", turned);
    turned.c = HostMatrix(type, s.m, s.n, 3, 8, true);
    add(type, s, " transposed, to a transpose", turned);
    MatmulCase added = case_of(s, type, type, type);
    added.residual = HostMatrix(type, s.m, s.n, 7, 4);
    added.alpha = 0.75f;
    add(type, s, " and a residual", added);
    MatmulCase finished = case_of(s, type, type, type);
    add_finish(finished, s, type, true, true);
    add(type, s, " finish", finished);
  }
  add_codes(cases);
  add_places(cases);
}

}  // namespace motley::kernels
