// One product as a case of the device table: operands however they lie, and its float64 reference.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "kernels/matmul.h"
#include "kernels/packed_device.h"
#include "kernels/quantize.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/packed_cases.h"

namespace motley::kernels {

/// A matrix however it lies, as bytes and as the numbers that they are.
struct HostMatrix {
  ConstMatrix view;  // without data
  std::vector<unsigned char> bytes;

  HostMatrix() = default;
  /// Row-major with `gap` elements between rows, or its transpose.
  HostMatrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t gap = 0, bool turned = false,
             bool special = false)
      : view{nullptr, dtype, rows, cols, turned ? 1 : cols + gap, turned ? rows + gap : 1} {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    const double specials[] = {nan, infinity, -0.0, -infinity, 1e-30, -0.0, 1e30};
    const int64_t count = turned ? cols * (rows + gap) : rows * (cols + gap);
    visit_dtype(dtype, [&]<class T>(T) {
      std::vector<T> numbers = values<T>(count, seed);
      if (special)
        for (size_t i = 0; i < numbers.size(); i += 11) numbers[i] = as<T>(specials[i / 11 % 7]);
      bytes.resize(numbers.size() * sizeof(T));
      std::copy_n(reinterpret_cast<const unsigned char*>(numbers.data()), bytes.size(), bytes.begin());
    });
  }
  double operator()(int64_t r, int64_t c) const {
    return visit_dtype(view.dtype, [&]<class T>(T) {
      T number;
      std::memcpy(&number, bytes.data() + (r * view.row_stride + c * view.col_stride) * sizeof(T), sizeof(T));
      return real(number);
    });
  }
};

struct MatmulCase {
  HostMatrix a, b, c, gate, residual;            // gate and residual without bytes: none
  std::shared_ptr<const QuantizedMatrix> codes;  // instead of b
  std::shared_ptr<const PackedMatrix> packed;
  std::vector<float> column_factors, row_factors, a_scales, b_scales;  // empty: none
  float alpha = 1;
  bool accumulate = false, plain = true;
  int64_t k_tile = 0, b_scale_rows = 128;

  int64_t n() const { return c.view.cols; }
  double b_value(const std::vector<float>& decoded_b, int64_t row, int64_t k) const {
    return codes != nullptr ? decoded_b[static_cast<size_t>(row * codes->cols + k)] : b(row, k);
  }
};

inline const float* data_or_null(const OnDevice<float>& array, const std::vector<float>& values) {
  return values.empty() ? nullptr : array.data();
}

/// Calls multiply(args) with the case's arrays on the device.
template <class Multiply>
Outputs run_product(const MatmulCase& in, const Device& device, const Multiply& multiply) {
  using Bytes = OnDevice<unsigned char>;
  const Bytes a(device, in.a.bytes), b(device, in.b.bytes), c(device, in.c.bytes), gate(device, in.gate.bytes),
      residual(device, in.residual.bytes);
  const OnDevice<float> columns(device, in.column_factors), rows(device, in.row_factors), a_scales(device, in.a_scales),
      b_scales(device, in.b_scales);
  const bool packed = in.packed != nullptr, host = device.kind == DeviceKind::cpu;
  PackedOnDevice weights;
  if (packed && !host) weights = copied_to(device, *in.packed);
  MatmulArgs args;
  const auto at = [](ConstMatrix view, const void* data) {
    view.data = data;
    return view;
  };
  args.a = at(in.a.view, a.data());
  if (!packed) args.b = at(in.b.view, b.data());
  if (packed && host) args.packed = in.packed.get();
  args.packed_codes = weights.view;
  const ConstMatrix& out = in.c.view;
  args.c = {c.data(), out.dtype, out.rows, out.cols, out.row_stride, out.col_stride};
  if (!in.gate.bytes.empty()) args.gate = at(in.gate.view, gate.data());
  if (!in.residual.bytes.empty()) args.residual = at(in.residual.view, residual.data());
  args.accumulate = in.accumulate;
  args.k_tile = in.k_tile;
  args.alpha = in.alpha;
  args.column_factors = data_or_null(columns, in.column_factors);
  args.row_factors = data_or_null(rows, in.row_factors);
  args.a_scales = data_or_null(a_scales, in.a_scales);
  args.b_scales = data_or_null(b_scales, in.b_scales);
  args.b_scale_rows = in.b_scale_rows;
  multiply(args);
  device_synchronize(device);
  Output output = c.output("c");
  constexpr Output::Kind kKinds[] = {Output::Kind::f32, Output::Kind::f64, Output::Kind::bf16, Output::Kind::f16};
  output.kind = kKinds[static_cast<int>(out.dtype)];
  return {output};
}

/// Against float64. `steps`: roundings of a sum, each of a float's (or double's) unit roundoff times its size.
inline std::string check_product(const MatmulCase& in, const Outputs& outputs, double steps) {
  if (!in.plain) return {};
  HostMatrix got = in.c;
  got.bytes = outputs[0].bytes;
  const int64_t depth = in.a.view.cols, blocks = (depth + 127) / 128;
  const std::vector<float> decoded_b = in.codes != nullptr ? decoded(*in.codes) : std::vector<float>();
  const double u = in.c.view.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  const double store = visit_dtype(in.c.view.dtype, []<class T>(T) { return unit<T>(); });
  std::string wrong;
  for (int64_t r = 0; r < in.c.view.rows; ++r) {
    for (int64_t col = 0; col < in.n() && wrong.empty(); ++col) {
      double sum = in.accumulate ? in.c(r, col) : 0, size = std::fabs(sum);
      for (int64_t k = 0; k < depth; ++k) {
        double term = in.a(r, k) * in.b_value(decoded_b, col, k);
        if (!in.a_scales.empty())
          term *= static_cast<double>(in.a_scales[r * blocks + k / 128]) *
                  in.b_scales[col / in.b_scale_rows * blocks + k / 128];
        sum += term;
        size += std::fabs(term);
      }
      double factor = in.alpha;
      if (!in.column_factors.empty()) factor *= in.column_factors[col];
      if (!in.row_factors.empty()) factor *= in.row_factors[r];
      double want = sum * factor;
      double bound = steps * u * size * std::fabs(factor);
      if (!in.gate.bytes.empty()) {
        const double gate = in.gate(r, col), silu = gate / (1 + std::exp(-gate));
        bound = (bound + (store + 8 * u) * std::fabs(want)) * std::fabs(silu);
        want *= silu;
      }
      if (!in.residual.bytes.empty()) {
        bound += store * std::fabs(want);
        want += in.residual(r, col);
      }
      bound += store * std::fabs(want) + (in.c.view.dtype == DType::f16 ? 0x1p-24 : 0);  // subnormals
      wrong = beyond("c", r * in.n() + col, got(r, col), want, bound);
    }
  }
  return wrong;
}

struct Shape {
  int64_t m, n, k;
  std::string text() const {
    return "[" + std::to_string(m) + ", " + std::to_string(n) + ", " + std::to_string(k) + "]";
  }
};

inline MatmulCase case_of(const Shape& s, DType a, DType b, DType c, bool special = false) {
  MatmulCase in;
  in.a = HostMatrix(a, s.m, s.k, 1, 0, false, special);
  in.b = HostMatrix(b, s.n, s.k, 2, 0, false, special);
  in.c = HostMatrix(c, s.m, s.n, 3);
  in.plain = !special;
  return in;
}
inline MatmulCase packed_case(const Shape& s, const Quantization& how, DType a, DType c, bool rare = false) {
  MatmulCase in = case_of(s, a, DType::f32, c);
  in.b = {};
  in.codes = std::make_shared<const QuantizedMatrix>(random_matrix(how, s.n, s.k, 2, rare));
  in.packed = std::make_shared<const PackedMatrix>(pack(*in.codes));
  in.plain = !rare;
  return in;
}
inline void add_finish(MatmulCase& in, const Shape& s, DType dtype, bool gate, bool residual, uint64_t seed = 0) {
  in.alpha = 0.75f;
  in.column_factors = values<float>(s.n, seed + 4);
  in.row_factors = values<float>(s.m, seed + 5);
  if (gate) in.gate = HostMatrix(dtype, s.m, s.n, seed + 6, 3);
  if (residual) in.residual = HostMatrix(dtype, s.m, s.n, seed + 7, 0, true);
}
inline void add_block_scales(MatmulCase& in, const Shape& s, int64_t b_scale_rows, uint64_t seed = 0) {
  const int64_t blocks = (s.k + 127) / 128;
  in.a_scales = values<float>(s.m * blocks, seed + 8);
  in.b_scales = values<float>((s.n + b_scale_rows - 1) / b_scale_rows * blocks, seed + 9);
  in.b_scale_rows = b_scale_rows;
  in.k_tile = 128;
}

}  // namespace motley::kernels
