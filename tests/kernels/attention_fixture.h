// Packed sequences for the attention tests, the same sequences decoded over pages, and both passes in float64.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/pointwise.h"
#include "tests/kernels/values.h"

namespace motley::kernels {

struct AttentionShape {
  int64_t heads = 4, kv_heads = 2, head_dim = 12;
  int64_t group() const { return heads / kv_heads; }
};
constexpr double kScale = 0.3;

template <class T>
struct Packed {
  AttentionShape shape;
  std::vector<int32_t> starts{0};
  std::vector<T> q, k, v, y, dy, dq, dk, dv;
  std::vector<Compute<T>> lse;

  Packed(const std::vector<int32_t>& lengths, uint64_t seed, double size = 1.5, AttentionShape of = {}) : shape(of) {
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
    q = values<T>(rows() * shape.heads * shape.head_dim, seed, size);
    k = values<T>(rows() * shape.kv_heads * shape.head_dim, seed + 1, size);
    v = values<T>(rows() * shape.kv_heads * shape.head_dim, seed + 2, size);
    dy = values<T>(static_cast<int64_t>(q.size()), seed + 3);
    y.resize(q.size());
    lse.resize(static_cast<size_t>(rows() * shape.heads));
  }
  int64_t rows() const { return starts.back(); }
  int64_t sequences() const { return static_cast<int64_t>(starts.size()) - 1; }
  void run() {
    cpu::attention<T>({y.data(), lse.data(), q.data(), k.data(), v.data(), starts.data(), rows(), sequences(),
                       shape.heads, shape.kv_heads, shape.head_dim, kScale});
  }
  void run_backward() {
    dq.assign(q.size(), as<T>(9.0));
    dk.assign(k.size(), as<T>(9.0));
    dv.assign(v.size(), as<T>(9.0));
    cpu::attention_backward<T>({dq.data(), dk.data(), dv.data(), dy.data(), y.data(), lse.data(), q.data(), k.data(),
                                v.data(), starts.data(), rows(), sequences(), shape.heads, shape.kv_heads,
                                shape.head_dim, kScale});
  }
  /// Everything that both passes write.
  std::vector<T> results() {
    run();
    run_backward();
    auto all = y;
    for (const auto* part : {&dq, &dk, &dv}) all.insert(all.end(), part->begin(), part->end());
    return all;
  }
  /// Sequence s alone.
  Packed alone(int64_t s) const {
    Packed one({starts[s + 1] - starts[s]}, 0, 1.5, shape);
    const auto cut = [&](const std::vector<T>& from, int64_t heads) {
      return std::vector<T>(from.begin() + starts[s] * heads * shape.head_dim,
                            from.begin() + starts[s + 1] * heads * shape.head_dim);
    };
    one.q = cut(q, shape.heads);
    one.k = cut(k, shape.kv_heads);
    one.v = cut(v, shape.kv_heads);
    one.run();
    return one;
  }
};

/// One sequence in a cache of pages in scrambled order.
template <class T>
struct Paged {
  AttentionShape shape;
  Format format;
  double scale;
  int64_t page_size;
  std::vector<int32_t> table;
  std::vector<uint8_t> keys, cached;

  Paged(AttentionShape of, int64_t length, Format format, double scale, int64_t page_size)
      : shape(of), format(format), scale(scale), page_size(page_size) {
    const int64_t pages = (length + page_size - 1) / page_size;
    for (int64_t p = 0; p < pages; ++p) table.push_back(static_cast<int32_t>(p % 2 == 0 ? pages - 1 - p / 2 : p / 2));
    const int64_t bytes = pages * page_size * shape.kv_heads * shape.head_dim * kv_bytes(format);
    keys.assign(static_cast<size_t>(bytes), 0xff);
    cached.assign(static_cast<size_t>(bytes), 0xff);
  }
  std::vector<const int32_t*> tables(int64_t rows) const { return {static_cast<size_t>(rows), table.data()}; }
  static std::vector<int32_t> positions(int64_t first, int64_t rows) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < rows; ++i) all.push_back(static_cast<int32_t>(first + i));
    return all;
  }
  void write(int64_t first, int64_t rows, const T* k, const T* v) {
    const auto pages = tables(rows);
    const auto at = positions(first, rows);
    CacheWriteArgs<T> args{keys.data(), k,    format,         scale,          pages.data(),
                           at.data(),   rows, shape.kv_heads, shape.head_dim, page_size};
    cpu::cache_write(args);
    args.cache = cached.data();
    args.rows_in = v;
    cpu::cache_write(args);
  }
  void attend(int64_t first, int64_t rows, const T* q, T* y) const {
    const auto pages = tables(rows);
    const auto at = positions(first, rows);
    cpu::paged_attention<T>({y, q, keys.data(), cached.data(), format, scale, pages.data(), at.data(), rows,
                             first + rows, shape.heads, shape.kv_heads, shape.head_dim, page_size, kScale});
  }
};

/// Decodes sequence s step by step (or in chunks) and returns its outputs.
template <class T>
std::vector<T> decode(const Packed<T>& packed, int64_t s, Format format, double scale, int64_t page_size,
                      int64_t chunk) {
  const AttentionShape& shape = packed.shape;
  const int64_t begin = packed.starts[s], length = packed.starts[s + 1] - begin;
  Paged<T> cache(shape, length, format, scale, page_size);
  std::vector<T> y(static_cast<size_t>(length * shape.heads * shape.head_dim));
  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t rows = std::min(chunk, length - first);
    const int64_t kv = (begin + first) * shape.kv_heads * shape.head_dim;
    cache.write(first, rows, packed.k.data() + kv, packed.v.data() + kv);
    const int64_t row = shape.heads * shape.head_dim;
    cache.attend(first, rows, packed.q.data() + (begin + first) * row, y.data() + first * row);
  }
  return y;
}

/// Both passes in float64, from the inputs as they are stored.
struct AttentionReference {
  std::vector<double> y, lse, dq, dk, dv;

  template <class T>
  explicit AttentionReference(const Packed<T>& packed)
      : y(packed.q.size()), lse(packed.lse.size()), dq(packed.q.size()), dk(packed.k.size()), dv(packed.v.size()) {
    const AttentionShape& shape = packed.shape;
    for (int64_t s = 0; s < packed.sequences(); ++s)
      for (int64_t i = packed.starts[s]; i < packed.starts[s + 1]; ++i)
        for (int64_t h = 0; h < shape.heads; ++h) row(packed, packed.starts[s], i, h);
  }

 private:
  template <class T>
  void row(const Packed<T>& packed, int64_t first, int64_t i, int64_t h) {
    const int64_t head_dim = packed.shape.head_dim, q = (i * packed.shape.heads + h) * head_dim;
    const auto key = [&](int64_t j) { return (j * packed.shape.kv_heads + h / packed.shape.group()) * head_dim; };
    std::vector<double> p;
    double sum = 0, mean = 0;
    for (int64_t j = first; j <= i; ++j) {
      double score = 0;
      for (int64_t d = 0; d < head_dim; ++d) score += real(packed.q[q + d]) * real(packed.k[key(j) + d]);
      p.push_back(std::exp(kScale * score));
      sum += p.back();
    }
    lse[q / head_dim] = std::log(sum);
    for (int64_t j = first; j <= i; ++j)
      for (int64_t d = 0; d < head_dim; ++d)
        y[q + d] += (p[j - first] /= d == 0 ? sum : 1) * real(packed.v[key(j) + d]);
    for (int64_t d = 0; d < head_dim; ++d) mean += real(packed.dy[q + d]) * y[q + d];
    for (int64_t j = first; j <= i; ++j) {
      double slope = -mean;
      for (int64_t d = 0; d < head_dim; ++d) slope += real(packed.dy[q + d]) * real(packed.v[key(j) + d]);
      slope *= p[j - first] * kScale;
      for (int64_t d = 0; d < head_dim; ++d) {
        dq[q + d] += slope * real(packed.k[key(j) + d]);
        dk[key(j) + d] += slope * real(packed.q[q + d]);
        dv[key(j) + d] += p[j - first] * real(packed.dy[q + d]);
      }
    }
  }
};

}  // namespace motley::kernels
