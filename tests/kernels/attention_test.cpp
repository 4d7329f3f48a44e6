#include "kernels/attention.h"

#include <limits>

#include "kernels/pointwise.h"
#include "tests/kernels/gradient.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 12;

template <class T>
struct Packed {
  std::vector<int32_t> starts{0};
  std::vector<T> q, k, v, y;
  std::vector<Compute<T>> lse;

  Packed(const std::vector<int32_t>& lengths, uint64_t seed, double size = 1.5) {
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
    q = values<T>(rows() * kHeads * kHeadDim, seed, size);
    k = values<T>(rows() * kKvHeads * kHeadDim, seed + 1, size);
    v = values<T>(rows() * kKvHeads * kHeadDim, seed + 2, size);
    y.resize(q.size());
    lse.resize(static_cast<size_t>(rows() * kHeads));
  }
  int64_t rows() const { return starts.back(); }
  int64_t sequences() const { return static_cast<int64_t>(starts.size()) - 1; }
  void run() {
    cpu::attention<T>({y.data(), lse.data(), q.data(), k.data(), v.data(), starts.data(), sequences(), kHeads, kKvHeads,
                       kHeadDim, 0.3});
  }
  /// Sequence s alone.
  Packed alone(int64_t s) const {
    Packed one({starts[s + 1] - starts[s]}, 0);
    const auto cut = [&](const std::vector<T>& from, int64_t heads) {
      return std::vector<T>(from.begin() + starts[s] * heads * kHeadDim,
                            from.begin() + starts[s + 1] * heads * kHeadDim);
    };
    one.q = cut(q, kHeads);
    one.k = cut(k, kKvHeads);
    one.v = cut(v, kKvHeads);
    one.run();
    return one;
  }
};

/// Decodes sequence s step by step (or in chunks) over pages in scrambled order and returns its outputs.
template <class T>
std::vector<T> decode(const Packed<T>& packed, int64_t s, Format format, double scale, int64_t page_size,
                      int64_t chunk) {
  const int64_t begin = packed.starts[s], length = packed.starts[s + 1] - begin;
  const int64_t pages = (length + page_size - 1) / page_size;
  std::vector<int32_t> table;
  for (int64_t p = 0; p < pages; ++p) table.push_back(static_cast<int32_t>(p % 2 == 0 ? pages - 1 - p / 2 : p / 2));
  const size_t bytes = static_cast<size_t>(pages * page_size * kKvHeads * kHeadDim * kv_bytes(format));
  std::vector<uint8_t> keys(bytes, 0xff), cached(bytes, 0xff);
  std::vector<T> y(static_cast<size_t>(length * kHeads * kHeadDim));
  for (int64_t first = 0; first < length; first += chunk) {
    const int64_t rows = std::min(chunk, length - first);
    std::vector<const int32_t*> tables(static_cast<size_t>(rows), table.data());
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < rows; ++i) positions.push_back(static_cast<int32_t>(first + i));
    const int64_t kv = (begin + first) * kKvHeads * kHeadDim;
    CacheWriteArgs<T> write{
        keys.data(), packed.k.data() + kv, format, scale, tables.data(), positions.data(), rows, kKvHeads, kHeadDim,
        page_size};
    cpu::cache_write(write);
    write.cache = cached.data();
    write.rows_in = packed.v.data() + kv;
    cpu::cache_write(write);
    cpu::paged_attention<T>({y.data() + first * kHeads * kHeadDim,
                             packed.q.data() + (begin + first) * kHeads * kHeadDim, keys.data(), cached.data(), format,
                             scale, tables.data(), positions.data(), rows, kHeads, kKvHeads, kHeadDim, page_size, 0.3});
  }
  return y;
}

}  // namespace

TEMPLATE_TEST_CASE("attention agrees with float64", "", float, double, bf16, fp16) {
  using T = TestType;
  Packed<T> packed({1, 2, 15, 16, 17, 33}, 1);
  packed.run();
  for (int64_t s = 0; s < packed.sequences(); ++s) {
    for (int64_t i = packed.starts[s]; i < packed.starts[s + 1]; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t q = (i * kHeads + h) * kHeadDim;
        std::vector<double> p, want(kHeadDim);
        double sum = 0, size = 0;
        for (int64_t j = packed.starts[s]; j <= i; ++j) {
          const int64_t k = (j * kKvHeads + h / 2) * kHeadDim;
          double score = 0;
          for (int64_t d = 0; d < kHeadDim; ++d) score += real(packed.q[q + d]) * real(packed.k[k + d]);
          p.push_back(std::exp(0.3 * score));
          sum += p.back();
        }
        for (int64_t j = packed.starts[s]; j <= i; ++j)
          for (int64_t d = 0; d < kHeadDim; ++d)
            want[d] += p[j - packed.starts[s]] / sum * real(packed.v[(j * kKvHeads + h / 2) * kHeadDim + d]);
        size = 1.5;
        // Scores below 8.1 err by 12 roundings, which exp turns into a relative error; chains of up to 33 add theirs.
        const double bound = (8.1 * 12 + 2 * 33 + 10) * unit<Compute<T>>() * size + unit<T>() * size;
        REQUIRE(std::fabs(static_cast<double>(packed.lse[i * kHeads + h]) - std::log(sum)) <=
                150 * unit<Compute<T>>() * 8.1);
        for (int64_t d = 0; d < kHeadDim; ++d) REQUIRE(std::fabs(real(packed.y[q + d]) - want[d]) <= bound);
      }
    }
  }
}

TEMPLATE_TEST_CASE("a sequence alone, packed, and decoded over pages: the same bits", "", float, double, bf16, fp16) {
  using T = TestType;
  const std::vector<int32_t> lengths{1, 2, 15, 16, 17, 33};
  for (const Format format : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2}) {
    for (const double scale : {1.0, 0.37}) {
      Packed<T> packed(lengths, 20);
      cpu::round_values(packed.k.data(), packed.k.data(), format, scale, static_cast<int64_t>(packed.k.size()));
      cpu::round_values(packed.v.data(), packed.v.data(), format, scale, static_cast<int64_t>(packed.v.size()));
      // Rounding twice must change nothing, else the cache would hold other values than the packed pass uses.
      const auto rounded = packed.k;
      cpu::round_values(packed.k.data(), packed.k.data(), format, scale, static_cast<int64_t>(packed.k.size()));
      CHECK(same_bits(rounded, packed.k));
      packed.run();
      for (int64_t s = 0; s < packed.sequences(); ++s) {
        const std::vector<T> want(packed.y.begin() + packed.starts[s] * kHeads * kHeadDim,
                                  packed.y.begin() + packed.starts[s + 1] * kHeads * kHeadDim);
        INFO(format_name(format) << " scale " << scale << ", length " << lengths[s]);
        CHECK(same_bits(want, packed.alone(s).y));
        CHECK(same_bits(want, decode(packed, s, format, scale, 4, 1)));
        CHECK(same_bits(want, decode(packed, s, format, scale, 16, 1)));
        CHECK(same_bits(want, decode(packed, s, format, scale, 4, 7)));
      }
    }
  }
}

TEST_CASE("attention's gradients") {
  Packed<double> packed({3, 1, 18}, 30);
  const auto dy = values<double>(static_cast<int64_t>(packed.y.size()), 33);
  packed.run();
  std::vector<double> dq(packed.q.size(), 9.0), dk(packed.k.size(), 9.0), dv(packed.v.size(), 9.0);
  cpu::attention_backward<double>({dq.data(), dk.data(), dv.data(), dy.data(), packed.y.data(), packed.lse.data(),
                                   packed.q.data(), packed.k.data(), packed.v.data(), packed.starts.data(),
                                   packed.sequences(), kHeads, kKvHeads, kHeadDim, 0.3});
  const auto loss = [&] {
    packed.run();
    return dot(packed.y, dy);
  };
  check_gradient(packed.q, dq, loss);
  check_gradient(packed.k, dk, loss);
  check_gradient(packed.v, dv, loss);
}

TEMPLATE_TEST_CASE("attention on threads: the same bits", "", float, bf16) {
  using T = TestType;
  Packed<T> packed({40, 1, 130, 64, 64, 7, 90}, 40);
  const auto dy = values<T>(static_cast<int64_t>(packed.y.size()), 43);
  const auto run = [&] {
    packed.run();
    std::vector<T> dq(packed.q.size()), dk(packed.k.size()), dv(packed.v.size());
    cpu::attention_backward<T>({dq.data(), dk.data(), dv.data(), dy.data(), packed.y.data(), packed.lse.data(),
                                packed.q.data(), packed.k.data(), packed.v.data(), packed.starts.data(),
                                packed.sequences(), kHeads, kKvHeads, kHeadDim, 0.3});
    auto all = packed.y;
    for (const auto* part : {&dq, &dk, &dv}) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  const auto serial = run();
  const auto decoded = decode(packed, 2, Format::fp32, 1.0, 16, 130);
  for (const int threads : {2, 4}) {
    const Threads scope(threads);
    CHECK(same_bits(serial, run()));
    CHECK(same_bits(decoded, decode(packed, 2, Format::fp32, 1.0, 16, 130)));
  }
}

TEST_CASE("attention: nothing, large scores, and NaN") {
  Packed<float> none({}, 50);
  none.run();
  cpu::paged_attention<float>({});
  Packed<float> one({1}, 51);
  one.run();
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t d = 0; d < kHeadDim; ++d) CHECK(one.y[h * kHeadDim + d] == one.v[h / 2 * kHeadDim + d]);
  Packed<float> large({20}, 52, 300.0);
  large.run();
  for (const float y : large.y) REQUIRE(std::isfinite(y));
  Packed<float> bad({5, 5}, 53);
  bad.k[(2 * kKvHeads) * kHeadDim] = std::numeric_limits<float>::quiet_NaN();
  bad.run();
  for (int64_t i = 0; i < 10; ++i) {
    const bool poisoned = i >= 2 && i < 5;  // causal, within its own sequence, in the heads of that key
    CHECK(std::isnan(bad.y[i * kHeads * kHeadDim]) == poisoned);
    CHECK_FALSE(std::isnan(bad.y[(i * kHeads + 3) * kHeadDim]));
  }
}

}  // namespace motley::kernels
