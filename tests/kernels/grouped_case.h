// A grouped product as plain products: every group is a MatmulCase with outputs and inputs of the same number and kind.
#pragma once

#include "kernels/matmul_grouped.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels {

/// A case for each group, with as many rows as `rows` says: by weights of the form `how`, or, without one, of the type
/// of the rows.
inline std::vector<MatmulCase> grouped_cases(const std::vector<int64_t>& rows, int64_t outputs, int64_t inputs,
                                             DType dtype, DType out, const Quantization* how = nullptr) {
  std::vector<MatmulCase> groups;
  for (size_t g = 0; g < rows.size(); ++g) {
    const Shape s{rows[g], outputs, inputs};
    const uint64_t seed = 10 * g;
    MatmulCase in = case_of(s, dtype, dtype, out);
    in.a = HostMatrix(dtype, s.m, s.k, seed + 1);
    in.b = HostMatrix(dtype, s.n, s.k, seed + 2);
    in.c = HostMatrix(out, s.m, s.n, seed + 3);
    if (how != nullptr) {
      in.b = {};
      in.codes = std::make_shared<const QuantizedMatrix>(random_matrix(*how, s.n, s.k, seed + 2, false));
      in.packed = std::make_shared<const PackedMatrix>(pack(*in.codes));
    }
    groups.push_back(std::move(in));
  }
  return groups;
}

/// The groups' arrays, one behind the other; matrices of row-major groups are one row-major matrix.
template <class T, class Member>
std::vector<T> joined(const std::vector<MatmulCase>& groups, const Member& member) {
  std::vector<T> all;
  for (const MatmulCase& in : groups) all.insert(all.end(), member(in).begin(), member(in).end());
  return all;
}
inline MatmulCase joined(const std::vector<MatmulCase>& groups) {
  MatmulCase all = groups[0];
  const auto join = [&](HostMatrix MatmulCase::*matrix) {
    HostMatrix& to = all.*matrix;
    to.bytes = joined<unsigned char>(
        groups, [&](const MatmulCase& in) -> const auto& { return (in.*matrix).bytes; });
    to.view.rows = 0;
    for (const MatmulCase& in : groups) to.view.rows += (in.*matrix).view.rows;
  };
  for (const auto matrix : {&MatmulCase::a, &MatmulCase::b, &MatmulCase::c, &MatmulCase::gate, &MatmulCase::residual})
    join(matrix);
  for (const auto floats :
       {&MatmulCase::column_factors, &MatmulCase::row_factors, &MatmulCase::a_scales, &MatmulCase::b_scales})
    all.*floats = joined<float>(
        groups, [&](const MatmulCase& in) -> const auto& { return in.*floats; });
  return all;
}

/// Calls multiply(args) with the groups' arrays on the device; returns C, group after group.
template <class Multiply>
Outputs run_grouped(const std::vector<MatmulCase>& groups, const Device& device, const Multiply& multiply) {
  std::vector<int64_t> offsets{0};
  std::vector<PackedMatrix> packed;
  for (const MatmulCase& in : groups) {
    offsets.push_back(offsets.back() + in.a.view.rows);
    if (in.packed != nullptr) packed.push_back(*in.packed);
  }
  const bool host = device.kind == DeviceKind::cpu;
  MatmulCase all = joined(groups);
  all.packed = nullptr;
  const OnDevice<int64_t> on_device(device, offsets);
  PackedOnDevice weights;
  if (!packed.empty() && !host) weights = copied_to(device, packed);
  return run_product(all, device, [&](MatmulArgs args) {
    if (!packed.empty() && host) args.packed = packed.data();
    args.packed_codes = weights.view;
    multiply(GroupedMatmulArgs{args, static_cast<int64_t>(groups.size()), on_device.data()});
  });
}
/// The part of C that is a group's.
inline Outputs output_of_group(const std::vector<MatmulCase>& groups, size_t group, const Outputs& all) {
  size_t begin = 0;
  for (size_t g = 0; g < group; ++g) begin += groups[g].c.bytes.size();
  Outputs own = all;
  const auto from = all[0].bytes.begin() + static_cast<ptrdiff_t>(begin);
  own[0].bytes.assign(from, from + static_cast<ptrdiff_t>(groups[group].c.bytes.size()));
  return own;
}

}  // namespace motley::kernels
