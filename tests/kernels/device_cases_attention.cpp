#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/device_memory.h"
#include "kernels/vendor.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/kernels/device_cases.h"

namespace motley::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// How far y, relative to its values' size, may be from float64: a score is a chain of head_dim products below 2.25,
/// times 0.3, which exp turns into a relative error of a weight; sums over the positions add theirs.
template <class T>
double weight_bound(const AttentionShape& shape, int64_t longest) {
  const auto d = static_cast<double>(shape.head_dim), n = static_cast<double>(longest);
  return (0.7 * d * d + 2 * n + 40) * unit<Compute<T>>();
}

template <class T>
struct AttentionInputs {
  Packed<T> packed;
  int64_t longest;
  bool plain;

  AttentionInputs(AttentionShape shape, const std::vector<int32_t>& lengths, bool plain_in)
      : packed(lengths, 1, 1.5, shape), longest(*std::max_element(lengths.begin(), lengths.end())), plain(plain_in) {
    if (!plain) poison();
    packed.run();
  }
  /// Whether a row's own keys and values are finite.
  bool finite(int64_t row) const { return plain || row < poisoned_; }

 private:
  /// Keys and values of the last positions of the last sequence, beyond the edge of all its other rows.
  void poison() {
    poisoned_ = packed.rows() - 3;
    const int64_t row = packed.shape.kv_heads * packed.shape.head_dim;
    const double special[] = {kInfinity, -kInfinity, kNan};
    for (int64_t i = 0; i < 3 * row; ++i) {
      packed.k[poisoned_ * row + i] = as<T>(special[i / row]);
      packed.v[poisoned_ * row + i] = as<T>(special[(i / row + i) % 3]);
    }
  }
  int64_t poisoned_ = 0;
};

/// The arrays of both passes on a device; y and lse as the CPU has them.
template <class T>
struct AttentionArrays {
  OnDevice<T> q, k, v, dy, y, dq, dk, dv;
  OnDevice<Compute<T>> lse;
  OnDevice<int32_t> starts;
  AttentionArgs<T> args;
  AttentionBackwardArgs<T> backward;

  AttentionArrays(const Packed<T>& in, const Device& d, bool filled)
      : q(d, in.q),
        k(d, in.k),
        v(d, in.v),
        dy(d, in.dy),
        y(d, filled ? in.y : std::vector<T>(in.y.size(), as<T>(9.0))),
        dq(d, std::vector<T>(in.q.size(), as<T>(9.0))),
        dk(d, std::vector<T>(in.k.size(), as<T>(9.0))),
        dv(d, std::vector<T>(in.v.size(), as<T>(9.0))),
        lse(d, filled ? in.lse : std::vector<Compute<T>>(in.lse.size())),
        starts(d, in.starts),
        args{y.data(),  lse.data(),     q.data(),       k.data(),          v.data(),          starts.data(),
             in.rows(), in.sequences(), in.shape.heads, in.shape.kv_heads, in.shape.head_dim, kScale},
        backward{dq.data(),      dk.data(),         dv.data(),         dy.data(),     y.data(),  lse.data(),
                 q.data(),       k.data(),          v.data(),          starts.data(), in.rows(), in.sequences(),
                 in.shape.heads, in.shape.kv_heads, in.shape.head_dim, kScale} {}
};

template <class T>
Outputs run_forward(const AttentionInputs<T>& in, const Device& device) {
  const AttentionArrays<T> on(in.packed, device, false);
  MOTLEY_DISPATCH(device, attention, on.args);
  device_synchronize(device);
  return {on.y.output("y"), on.lse.output("lse")};
}
template <class T>
Outputs run_backward(const AttentionInputs<T>& in, const Device& device) {
  const AttentionArrays<T> on(in.packed, device, true);
  MOTLEY_DISPATCH(device, attention_backward, on.backward);
  device_synchronize(device);
  return {on.dq.output("dq"), on.dk.output("dk"), on.dv.output("dv")};
}

/// By cuDNN on a CUDA device that it serves; elsewhere the device's own kernels stand in.
bool has_cudnn(const Device& device, const AttentionShape& shape, DType dtype) {
  return device.kind == DeviceKind::cuda &&
         vendor_attention_refusal(dtype, shape.heads, shape.kv_heads, shape.head_dim, cuda::compute_capability())
             .empty();
}
template <class T>
Outputs run_vendor_forward(const AttentionInputs<T>& in, const Device& device) {
  if (!has_cudnn(device, in.packed.shape, dtype_of<T>())) return run_forward(in, device);
  const AttentionArrays<T> on(in.packed, device, false);
  if (!cuda::vendor_attention(on.args, in.packed.starts)) throw std::runtime_error("cuDNN refused");
  device_synchronize(device);
  return {on.y.output("y"), on.lse.output("lse")};
}
template <class T>
Outputs run_vendor_backward(const AttentionInputs<T>& in, const Device& device) {
  if (!has_cudnn(device, in.packed.shape, dtype_of<T>())) return run_backward(in, device);
  const AttentionArrays<T> on(in.packed, device, true);
  if (!cuda::vendor_attention_backward(on.backward, in.packed.starts)) throw std::runtime_error("cuDNN refused");
  device_synchronize(device);
  return {on.dq.output("dq"), on.dk.output("dk"), on.dv.output("dv")};
}

/// `slack`: of the bounds, for kernels that round more.
template <class T>
std::string check_forward(const AttentionInputs<T>& in, const Outputs& outputs, double slack = 1) {
  const AttentionReference want(in.packed);
  const auto y = elements<T>(outputs[0]);
  const auto lse = elements<Compute<T>>(outputs[1]);
  const AttentionShape& shape = in.packed.shape;
  const double weight = weight_bound<T>(shape, in.longest);
  std::string wrong;
  for (size_t i = 0; i < y.size() && wrong.empty(); ++i)
    if (in.finite(static_cast<int64_t>(i) / (shape.heads * shape.head_dim)))
      wrong += beyond("y", static_cast<int64_t>(i), real(y[i]), want.y[i], slack * (2 * weight + 2 * unit<T>()));
  for (size_t i = 0; i < lse.size() && wrong.empty(); ++i)
    if (in.finite(static_cast<int64_t>(i) / shape.heads))
      wrong += beyond("lse", static_cast<int64_t>(i), lse[i], want.lse[i], slack * (weight + 16 * unit<Compute<T>>()));
  return wrong;
}

template <class T>
std::string check_backward(const AttentionInputs<T>& in, const Outputs& outputs, double slack = 1) {
  const AttentionReference want(in.packed);
  const AttentionShape& shape = in.packed.shape;
  const auto d = static_cast<double>(shape.head_dim);
  const double rows = static_cast<double>(in.longest * shape.group()), weight = 2 * weight_bound<T>(shape, in.longest);
  // The slope of a score is a weight times a difference of two sums of head_dim products below 1.5; mean takes y as it
  // was stored. dq sums slopes with keys, dk and dv sum over the rows of every head of the group.
  const double slope = 1.5 * kScale * (2 * d * weight + d * unit<T>() + d * d * unit<Compute<T>>());
  const double sums = rows * rows * unit<Compute<T>>();
  const auto compare = [&](const Output& output, const std::vector<double>& right, double bound, int64_t row_size) {
    const auto got = elements<T>(output);
    for (size_t i = 0; i < got.size(); ++i) {
      // A row of NaN reaches the keys of its sequence, the last; dq of the rows before it stays what it was.
      const int64_t row = static_cast<int64_t>(i) / row_size;
      const bool told = output.name == "dq" ? in.finite(row) : in.plain || row < in.packed.starts.end()[-2];
      if (!told) continue;
      std::string wrong = beyond(output.name, static_cast<int64_t>(i), real(got[i]), right[i], slack * bound);
      if (!wrong.empty()) return wrong;
    }
    return std::string();
  };
  const int64_t query = shape.heads * shape.head_dim, key = shape.kv_heads * shape.head_dim;
  return compare(outputs[0], want.dq, 3 * slope + 6 * d * unit<T>(), query) +
         compare(outputs[1], want.dk, rows * slope + sums + 2 * rows * unit<T>(), key) +
         compare(outputs[2], want.dv, rows * weight + sums + rows * unit<T>(), key);
}

/// Rows of a step over the cache: `count` neighbours of one sequence from position `first` on.
struct Chunk {
  int64_t sequence, first, count;
};

/// Packed sequences whose keys and values a cache holds, rounded as it rounds them, and a step's rows among them.
template <class T>
struct PagedInputs {
  Packed<T> packed;
  Format format;
  double kv_scale;
  int64_t page_size, longest, told;  // told: what the kernel is told is the longest context
  std::vector<int32_t> pages;        // of all sequences, one after the other
  std::vector<int64_t> page_begin;   // of a sequence among them
  std::vector<uint8_t> keys, cached;
  std::vector<T> q;
  std::vector<int32_t> positions;
  std::vector<int64_t> row_sequence, row_packed;  // of a row of the step: its sequence, and its row in the packed pass

  PagedInputs(AttentionShape shape, const std::vector<int32_t>& lengths, const std::vector<Chunk>& chunks,
              Format format_in, double scale_in, int64_t page_size_in)
      : packed(lengths, 7, 1.5, shape),
        format(format_in),
        kv_scale(scale_in),
        page_size(page_size_in),
        longest(*std::max_element(lengths.begin(), lengths.end())),
        told(longest) {
    for (auto* rows : {&packed.k, &packed.v})
      cpu::round_values(rows->data(), rows->data(), format, kv_scale, static_cast<int64_t>(rows->size()));
    cut_pages();
    keys = write(packed.k);
    cached = write(packed.v);
    const int64_t row = shape.heads * shape.head_dim;
    for (const Chunk& chunk : chunks) {
      for (int64_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
        const int64_t at = packed.starts[chunk.sequence] + i;
        positions.push_back(static_cast<int32_t>(i));
        row_sequence.push_back(chunk.sequence);
        row_packed.push_back(at);
        q.insert(q.end(), packed.q.begin() + at * row, packed.q.begin() + (at + 1) * row);
      }
    }
  }
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  bool small() const { return longest < 4096; }
  /// [rows]: where the pages of each row's sequence begin, from `base` on.
  std::vector<const int32_t*> tables(const int32_t* base) const {
    std::vector<const int32_t*> all;
    for (const int64_t s : row_sequence) all.push_back(base + page_begin[s]);
    return all;
  }

 private:
  /// Pages of all sequences, the highest first.
  void cut_pages() {
    for (int64_t s = 0; s < packed.sequences(); ++s) {
      page_begin.push_back(static_cast<int64_t>(pages.size()));
      const int64_t length = packed.starts[s + 1] - packed.starts[s];
      for (int64_t p = 0; p < (length + page_size - 1) / page_size; ++p) pages.push_back(0);
    }
    for (size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<int32_t>(pages.size() - 1 - p);
  }
  /// Codes of the rows in their pages, NaN elsewhere.
  std::vector<uint8_t> write(const std::vector<T>& from) const {
    const int64_t row = packed.shape.kv_heads * packed.shape.head_dim;
    std::vector<uint8_t> cache(static_cast<size_t>(static_cast<int64_t>(pages.size()) * page_size * row) *
                                   static_cast<size_t>(kv_bytes(format)),
                               0xff);
    std::vector<const int32_t*> table;
    std::vector<int32_t> at;
    for (int64_t s = 0; s < packed.sequences(); ++s) {
      for (int32_t i = 0; i < packed.starts[s + 1] - packed.starts[s]; ++i) {
        table.push_back(pages.data() + page_begin[s]);
        at.push_back(i);
      }
    }
    cpu::cache_write<T>({cache.data(), from.data(), format, kv_scale, table.data(), at.data(), packed.rows(),
                         packed.shape.kv_heads, packed.shape.head_dim, page_size});
    return cache;
  }
};

/// The step's y, and the packed pass's, whose bits its rows must have. That takes long for long sequences.
template <class T>
Outputs run_paged(const PagedInputs<T>& in, const Device& device) {
  const AttentionArrays<T> on(in.packed, device, false);
  if (in.small()) MOTLEY_DISPATCH(device, attention, on.args);
  const OnDevice<T> q(device, in.q), y(device, std::vector<T>(in.q.size(), as<T>(9.0)));
  const OnDevice<uint8_t> keys(device, in.keys), cached(device, in.cached);
  const OnDevice<int32_t> pages(device, in.pages), positions(device, in.positions);
  const OnDevice<const int32_t*> tables(device, in.tables(pages.data()));
  const AttentionShape& shape = in.packed.shape;
  const PagedAttentionArgs<T> args{y.data(),    q.data(),       keys.data(),      cached.data(), in.format,
                                   in.kv_scale, tables.data(),  positions.data(), in.rows(),     in.told,
                                   shape.heads, shape.kv_heads, shape.head_dim,   in.page_size,  kScale};
  MOTLEY_DISPATCH(device, paged_attention, args);
  device_synchronize(device);
  return {y.output("y"), on.y.output("packed")};
}

template <class T>
std::string check_paged(const PagedInputs<T>& in, const Outputs& outputs) {
  if (!in.small()) return {};
  const AttentionReference want(in.packed);
  const auto y = elements<T>(outputs[0]), packed = elements<T>(outputs[1]);
  const int64_t row = in.packed.shape.heads * in.packed.shape.head_dim;
  const double bound = 2 * weight_bound<T>(in.packed.shape, in.longest) + 2 * unit<T>();
  for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
    const int64_t at = in.row_packed[i / row] * row + i % row;
    if (!same_bits<T>({y[i]}, {packed[at]})) return "y[" + std::to_string(i) + "]: not the packed pass's bits";
    std::string wrong = beyond("y", i, real(y[i]), want.y[at], bound);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string shape_name(const AttentionShape& shape, const std::vector<int32_t>& lengths) {
  std::string name = "heads " + std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + " of " +
                     std::to_string(shape.head_dim) + ", tokens";
  for (const int32_t length : lengths) name += " " + std::to_string(length);
  return name;
}

template <class T>
void add_packed_cases(std::vector<DeviceCase>& cases) {
  struct Shape {
    AttentionShape shape;
    std::vector<int32_t> lengths;
    bool plain = true;
  };
  // Tiles: 64 positions, 64 rows (32 of fp64), 32 columns of head_dim at a time, 128 (64 of fp64) to a block.
  std::vector<Shape> shapes{{{3, 1, 5}, {0, 1, 63, 0, 64, 65, 0}}, {{2, 1, 4}, {31, 70}, false}, {{2, 1, 130}, {3, 5}}};
  if (std::is_same_v<T, float>) {
    for (const Shape& s : {Shape{{1, 1, 1}, {0}}, {{1, 1, 33}, {1}}, {{3, 3, 2}, {2, 16, 17}}, {{20, 1, 3}, {9}}})
      shapes.push_back(s);
  }
  for (const Shape& s : shapes) {
    const AttentionInputs<T> in(s.shape, s.lengths, s.plain);
    const std::string type = dtype_name(dtype_of<T>());
    const std::string name = shape_name(s.shape, s.lengths) + (s.plain ? "" : " special");
    cases.push_back({"attention", type, name, [in](const Device& d) { return run_forward(in, d); },
                     [in](const Outputs& o) { return check_forward(in, o); }});
    cases.push_back({"attention_backward", type, name, [in](const Device& d) { return run_backward(in, d); },
                     [in](const Outputs& o) { return check_backward(in, o); }});
  }
}

/// cuDNN rounds the weights and their slopes to T before it multiplies with them, and sums dq in no fixed order: four
/// times the bounds of our own kernels hold that.
template <class T>
void add_vendor_cases(std::vector<DeviceCase>& cases) {
  const struct {
    AttentionShape shape;
    std::vector<int32_t> lengths;
  } shapes[] = {{{4, 2, 16}, {0, 1, 63, 0, 65}}, {{2, 2, 8}, {5}}, {{2, 1, 128}, {70, 3}}};
  for (const auto& s : shapes) {
    const AttentionInputs<T> in(s.shape, s.lengths, true);
    const std::string type = dtype_name(dtype_of<T>()), name = shape_name(s.shape, s.lengths);
    const auto add = [&](const char* kernel, const auto& run, const auto& check) {
      DeviceCase c{kernel, type, name, run, check, false};
      c.repeats = false;
      cases.push_back(c);
    };
    add(
        "vendor_attention", [in](const Device& d) { return run_vendor_forward(in, d); },
        [in](const Outputs& o) { return check_forward(in, o, 4); });
    add(
        "vendor_attention_backward", [in](const Device& d) { return run_vendor_backward(in, d); },
        [in](const Outputs& o) { return check_backward(in, o, 4); });
  }
}

struct PagedShape {
  const char* name;
  AttentionShape shape;
  std::vector<int32_t> lengths;
  std::vector<Chunk> chunks;
  int64_t page_size;
  double kv_scale;
  int64_t told = 0;  // the longest context that the kernel is told of; 0: what it is
};
template <class T>
void add_paged_case(std::vector<DeviceCase>& cases, const PagedShape& s, Format format) {
  PagedInputs<T> in(s.shape, s.lengths, s.chunks, format, s.kv_scale, s.page_size);
  in.told = std::max(in.told, s.told);
  const std::string name = std::string(s.name) + shape_name(s.shape, s.lengths);
  cases.push_back({"paged_attention", dtype_name(dtype_of<T>()), name + ", cache " + std::string(format_name(format)),
                   [in](const Device& d) { return run_paged(in, d); },
                   [in](const Outputs& o) { return check_paged(in, o); }});
}
template <class T>
void add_paged_cases(std::vector<DeviceCase>& cases) {
  const PagedShape steps{"steps among chunks, ",
                         {3, 1, 5},
                         {1, 65, 6},
                         {{1, 64, 1}, {0, 0, 1}, {2, 2, 4}, {1, 20, 12}, {2, 5, 1}},
                         16,
                         0.37};
  for (const Format format : {Format::fp64, Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2})
    add_paged_case<T>(cases, steps, format);
  PagedShape told = steps;
  told.name = "told of three blocks, ";
  told.told = 2 * 4096 + 1;
  add_paged_case<T>(cases, told, Format::bf16);
  add_paged_case<T>(cases, {"several tiles of a group, ", {70, 1, 33}, {7}, {{0, 3, 2}, {0, 6, 1}}, 3, 1.0},
                    Format::fp32);
}

}  // namespace

void add_attention_cases(std::vector<DeviceCase>& cases) {
  const auto add = [&]<class T>(T) {
    add_packed_cases<T>(cases);
    add_paged_cases<T>(cases);
  };
  add(float{});
  add(double{});
  add(bf16{});
  add(fp16{});
  add_vendor_cases<bf16>(cases);
  add_vendor_cases<fp16>(cases);
  // A second and a third block of 4096 positions, for rows on both sides of their edges.
  add_paged_case<float>(cases, {"blocks of positions, ", {1, 1, 3}, {8195}, {{0, 8190, 5}, {0, 4096, 1}}, 16, 1.0},
                        Format::fp32);
}

}  // namespace motley::kernels
