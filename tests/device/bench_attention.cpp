// Attention of packed sequences, its backward pass, both beside cuDNN's, and a decode step over pages.
#include <cmath>

#include "kernels/attention.h"
#include "kernels/device_buffer.h"
#include "kernels/vendor.h"
#include "tests/device/bench.h"
#include "tests/kernels/values.h"

namespace motley::device_bench {

using namespace kernels;

namespace {

struct Sizes {
  int64_t sequences, length, heads, kv_heads, head_dim;
  int64_t rows() const { return sequences * length; }
};

/// Of all causal scores and their products with the values.
double forward_flop(const Sizes& s) {
  const double pairs = 0.5 * static_cast<double>(s.sequences) * static_cast<double>(s.length * (s.length + 1));
  return 4.0 * pairs * static_cast<double>(s.heads * s.head_dim);
}

std::shared_ptr<const bf16> random_rows(const Device& device, int64_t count, uint64_t seed) {
  return copied_to(device, values<bf16>(count, seed).data(), static_cast<size_t>(count));
}
std::shared_ptr<void> room(const Device& device, int64_t count, size_t size) {
  return allocate_on(device, static_cast<size_t>(count) * size);
}

void add_packed(const Setting& setting, const Sizes& s, const Report& report) {
  const Device& device = setting.device;
  const int64_t wide = s.rows() * s.heads * s.head_dim, narrow = s.rows() * s.kv_heads * s.head_dim;
  const auto q = random_rows(device, wide, 1), k = random_rows(device, narrow, 2), v = random_rows(device, narrow, 3);
  const auto dy = random_rows(device, wide, 4);
  const auto y = room(device, wide, 2), dq = room(device, wide, 2), dk = room(device, narrow, 2);
  const auto dv = room(device, narrow, 2), lse = room(device, s.rows() * s.heads, 4);
  std::vector<int32_t> starts;
  for (int64_t i = 0; i <= s.sequences; ++i) starts.push_back(static_cast<int32_t>(i * s.length));
  const auto starts_there = copied_to(device, starts.data(), starts.size());
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  auto* const out = static_cast<bf16*>(y.get());
  const AttentionArgs<bf16> forward{out,        static_cast<float*>(lse.get()),
                                    q.get(),    k.get(),
                                    v.get(),    starts_there.get(),
                                    s.rows(),   s.sequences,
                                    s.heads,    s.kv_heads,
                                    s.head_dim, scale};
  const AttentionBackwardArgs<bf16> backward{static_cast<bf16*>(dq.get()),
                                             static_cast<bf16*>(dk.get()),
                                             static_cast<bf16*>(dv.get()),
                                             dy.get(),
                                             out,
                                             static_cast<const float*>(lse.get()),
                                             q.get(),
                                             k.get(),
                                             v.get(),
                                             starts_there.get(),
                                             s.rows(),
                                             s.sequences,
                                             s.heads,
                                             s.kv_heads,
                                             s.head_dim,
                                             scale};
  const std::string sizes = ", bf16, " + std::to_string(s.sequences) + " x " + std::to_string(s.length);
  const double peak = setting.card != nullptr ? setting.card->bf16 : 0.0;
  const auto add = [&](const std::string& pass, double flop, const std::function<bool()>& vendor,
                       const std::function<void()>& ours) {
    Row row{"attention", pass + ", cuDNN" + sizes};
    row.flop = flop;
    row.peak_tflops = peak;
    double of_vendor = 0;
    if (device.kind == DeviceKind::cuda && vendor()) {  // compiled by now
      row.seconds = of_vendor = seconds_of(setting, [&] { vendor(); });
      report(row);
    }
    row.name = pass + sizes;
    row.seconds = seconds_of(setting, ours);
    if (of_vendor > 0) row.against = "cuDNN", row.ratio = of_vendor / row.seconds;
    report(row);
  };
  add(
      "forward", forward_flop(s), [&] { return cuda::vendor_attention(forward, starts); },
      [&] { MOTLEY_RUN(device, attention, forward); });
  // Five products of rows and columns, where forward has two.
  add(
      "backward", 2.5 * forward_flop(s), [&] { return cuda::vendor_attention_backward(backward, starts); },
      [&] { MOTLEY_RUN(device, attention_backward, backward); });
}

/// One new position of each sequence, over `length` cached ones.
void add_paged(const Setting& setting, const Sizes& s, Format format, const Report& report) {
  const Device& device = setting.device;
  constexpr int64_t kPage = 16;
  const int64_t pages = (s.length + kPage - 1) / kPage, width = s.kv_heads * s.head_dim;
  const int64_t codes = s.sequences * pages * kPage * width;
  std::vector<uint8_t> cache(static_cast<size_t>(codes * kv_bytes(format)));
  for (size_t i = 0; i < cache.size(); ++i) cache[i] = static_cast<uint8_t>(i % 89 % 64);  // no NaN in any format
  const auto keys = copied_to(device, cache.data(), cache.size()), v = copied_to(device, cache.data(), cache.size());
  const auto q = random_rows(device, s.sequences * s.heads * s.head_dim, 1);
  const auto y = room(device, s.sequences * s.heads * s.head_dim, 2);
  std::vector<int32_t> table(static_cast<size_t>(s.sequences * pages)), positions;
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  const auto table_there = copied_to(device, table.data(), table.size());
  std::vector<const int32_t*> tables;
  for (int64_t i = 0; i < s.sequences; ++i) {
    tables.push_back(table_there.get() + i * pages);
    positions.push_back(static_cast<int32_t>(s.length - 1));
  }
  const auto tables_there = copied_to(device, tables.data(), tables.size());
  const auto positions_there = copied_to(device, positions.data(), positions.size());
  PagedAttentionArgs<bf16> args{};
  args.y = static_cast<bf16*>(y.get());
  args.q = q.get();
  args.keys = keys.get(), args.values = v.get();
  args.kv_format = format, args.kv_scale = 1.0;
  args.page_table = tables_there.get(), args.positions = positions_there.get();
  args.rows = s.sequences, args.heads = s.heads, args.kv_heads = s.kv_heads, args.head_dim = s.head_dim;
  args.page_size = kPage;
  args.scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  Row row{"attention", "decode over " + std::string(format_name(format)) + " pages, " + std::to_string(s.sequences) +
                           " x " + std::to_string(s.length)};
  row.seconds = seconds_of(setting, [&] { MOTLEY_RUN(device, paged_attention, args); });
  row.bytes = 2.0 * static_cast<double>(s.sequences * s.length * width * kv_bytes(format));
  report(row);
}

}  // namespace

void attention(const Setting& setting, const Report& report) {
  if (setting.tiny) {
    add_packed(setting, {2, 5, 2, 1, 8}, report);
    add_paged(setting, {2, 20, 2, 1, 8}, Format::e4m3, report);
    return;
  }
  add_packed(setting, {4, 1024, 16, 8, 128}, report);
  add_packed(setting, {1, 8192, 16, 8, 128}, report);
  for (const Format format : {Format::bf16, Format::e4m3}) {
    add_paged(setting, {1, 4096, 16, 8, 128}, format, report);
    add_paged(setting, {64, 4096, 16, 8, 128}, format, report);
  }
}

}  // namespace motley::device_bench
