#include <cmath>

#include "kernels/attention.h"
#include "kernels/pointwise.h"
#include "kernels/vendor.h"
#include "tensor/ops.h"
#include "tensor/ops_common.h"

namespace motley {

using kernels::Compute;
using kernels::visit_dtype;

RopeTable::RopeTable(int64_t positions, int64_t head_dim, double theta, DType compute, const Device& device) {
  MOTLEY_CHECK(positions >= 0 && head_dim > 0 && head_dim % 2 == 0 && theta > 0.0, "rope table",
               "needs an even head_dim and a positive theta");
  const int64_t half = head_dim / 2;
  std::vector<double> cos_values(static_cast<size_t>(positions * half)), sin_values(cos_values.size());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      cos_values[static_cast<size_t>(p * half + i)] = std::cos(angle);
      sin_values[static_cast<size_t>(p * half + i)] = std::sin(angle);
    }
  }
  cosines = Tensor::from(std::span<const double>(cos_values), {positions, half}, compute, device);
  sines = Tensor::from(std::span<const double>(sin_values), {positions, half}, compute, device);
}

namespace {

using Positions = ops::DeviceList<int32_t>;

/// y = the elements at `x` rotated; x may be y's own memory.
void rotate(const Tensor& y, const void* x, const Positions& positions, int64_t heads, const RopeTable& table,
            bool inverse) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    using C = Compute<T>;
    MOTLEY_RUN(y.device(), rope<T>,
               {y.pointer<T>(), static_cast<const T*>(x), positions.data(), table.cosines.pointer<C>(),
                table.sines.pointer<C>(), positions.size(), heads, 2 * table.cosines.dim(1), inverse});
  });
}

void check_rope(const Tensor& x, std::span<const int32_t> positions, int64_t heads, const RopeTable& table) {
  const auto rows = static_cast<int64_t>(positions.size());
  MOTLEY_CHECK(table.cosines.defined() && x.numel() == rows * heads * 2 * table.cosines.dim(1), "rope",
               "x must be [rows, heads * head_dim] of the table's head_dim, with one position per row");
  ops::device_of("rope", x, table.cosines);
  for (const int32_t position : positions) {
    MOTLEY_CHECK(
        position >= 0 && position < table.cosines.dim(0), "rope",
        "position " + std::to_string(position) + " is beyond the table of " + std::to_string(table.cosines.dim(0)));
  }
}

/// Rotates the values of x into y.
Tensor rotated(const Tensor& x, const void* values, const Tensor& y, std::span<const int32_t> positions, int64_t heads,
               const RopeTable& table) {
  const Positions list(y.device(), positions);
  rotate(y, values, list, heads, table, false);
  if (!grad_enabled() || !x.requires_grad()) return y;
  return record("rope", y, {x}, [x, kept = list.kept(), heads, table](const Tensor& dy) {
    Tensor dx = ops::empty_like(x);
    rotate(dx, dy.raw(), kept, heads, table, true);
    x.add_grad(std::move(dx));
  });
}

}  // namespace

Tensor rope(const Tensor& x, std::span<const int32_t> positions, int64_t heads, const RopeTable& table) {
  check_rope(x, positions, heads, table);
  return rotated(x, x.raw(), ops::empty_like(x), positions, heads, table);
}

// By value: memory is taken over from who has no other holder.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Tensor rope_in_place(Tensor x, std::span<const int32_t> positions, int64_t heads, const RopeTable& table) {
  check_rope(x, positions, heads, table);
  const void* values = x.raw();
  return rotated(x, values, Tensor::take_over(x), positions, heads, table);
}

namespace {

/// True where cuDNN computed it.
template <class Args>
bool use_vendor(Kernels choice, const Device& device, const Args& args, std::span<const int32_t> starts) {
  using T = std::remove_pointer_t<decltype(args.y)>;
  if constexpr (std::is_same_v<std::remove_const_t<T>, kernels::bf16> ||
                std::is_same_v<std::remove_const_t<T>, kernels::fp16>) {
    if (choice != Kernels::vendor || device.kind != kernels::DeviceKind::cuda) return false;
    if constexpr (std::is_const_v<T>)
      return kernels::cuda::vendor_attention_backward(args, starts);
    else
      return kernels::cuda::vendor_attention(args, starts);
  }
  return false;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, int64_t kv_heads,
                 std::span<const int32_t> starts, Kernels choice) {
  MOTLEY_CHECK(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "attention",
               "the number of heads must be a multiple of the number of key heads");
  ops::check_same("attention", k, v);
  const Device& device = ops::device_of("attention", q, k);
  const int64_t head_dim = q.dim(-1) / heads;
  MOTLEY_CHECK(q.shape().size() == 2 && k.shape() == Shape({q.dim(0), kv_heads * head_dim}) &&
                   q.dim(1) == heads * head_dim && q.dtype() == k.dtype(),
               "attention", "q must be [rows, heads * head_dim], k and v [rows, kv_heads * head_dim], of one type");
  MOTLEY_CHECK(!starts.empty() && starts.front() == 0 && starts.back() == q.dim(0), "attention",
               "the sequences do not cover the rows");
  for (size_t s = 1; s < starts.size(); ++s) {
    MOTLEY_CHECK(starts[s - 1] <= starts[s], "attention", "the starts of sequences must ascend");
  }
  const auto sequences = static_cast<int64_t>(starts.size()) - 1;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  const bool recorded = grad_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  Tensor y = ops::empty_like(q);
  const Tensor lse = recorded ? Tensor::empty({q.dim(0), heads}, kernels::compute_dtype(q.dtype()), device) : Tensor();
  const ops::DeviceList<int32_t> list(device, starts);
  visit_dtype(q.dtype(), [&]<class T>(T) {
    const kernels::AttentionArgs<T> args{y.pointer<T>(), recorded ? lse.pointer<Compute<T>>() : nullptr,
                                         q.pointer<T>(), k.pointer<T>(),
                                         v.pointer<T>(), list.data(),
                                         q.dim(0),       sequences,
                                         heads,          kv_heads,
                                         head_dim,       scale};
    if (!use_vendor(choice, device, args, starts)) MOTLEY_DISPATCH(device, attention<T>, args);
  });
  if (!recorded) return y;
  const std::vector<int32_t> host(starts.begin(), starts.end());
  return record("attention", y, {q, k, v}, [=, values = y.detach(), kept = list.kept()](const Tensor& dy) {
    Tensor dq = ops::empty_like(q), dk = ops::empty_like(k), dv = ops::empty_like(v);
    visit_dtype(q.dtype(), [&]<class T>(T) {
      const kernels::AttentionBackwardArgs<T> args{dq.pointer<T>(),
                                                   dk.pointer<T>(),
                                                   dv.pointer<T>(),
                                                   dy.pointer<T>(),
                                                   values.pointer<T>(),
                                                   lse.pointer<Compute<T>>(),
                                                   q.pointer<T>(),
                                                   k.pointer<T>(),
                                                   v.pointer<T>(),
                                                   kept.data(),
                                                   q.dim(0),
                                                   sequences,
                                                   heads,
                                                   kv_heads,
                                                   head_dim,
                                                   scale};
      if (!use_vendor(choice, q.device(), args, host)) MOTLEY_DISPATCH(q.device(), attention_backward<T>, args);
    });
    if (q.requires_grad()) q.add_grad(std::move(dq));
    if (k.requires_grad()) k.add_grad(std::move(dk));
    if (v.requires_grad()) v.add_grad(std::move(dv));
  });
}

}  // namespace motley
