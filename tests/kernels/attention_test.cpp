#include "kernels/attention.h"

#include <array>
#include <limits>

#include "kernels/cpu/kv_decode.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/kv_format.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/kernels/gradient.h"

namespace motley::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
double largest_error(const std::vector<T>& got, const std::vector<double>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(real(got[i]) - want[i]);
    worst = error <= worst ? worst : error;  // NaN is the worst
  }
  return worst;
}

}  // namespace

TEMPLATE_TEST_CASE("attention agrees with float64", "", float, double, bf16, fp16) {
  using T = TestType;
  const AttentionShape shape = GENERATE(AttentionShape{}, AttentionShape{1, 1, 32}, AttentionShape{8, 1, 5},
                                        AttentionShape{3, 3, 16}, AttentionShape{4, 1, 64});
  // Around the borders of vectors, of tiles of 64 keys and of blocks of 128 rows.
  Packed<T> packed({1, 2, 15, 16, 17, 33, 63, 64, 65, 130}, 1, 1.0, shape);
  packed.run();
  packed.run_backward();
  const AttentionReference want(packed);
  // A score is a chain of head_dim products below 1, times 0.3: it errs by 0.3 head_dim^2 roundings, which exp turns
  // into a relative error of a weight. Sums of up to 130 weights and as many values below 1 add theirs.
  const auto d = static_cast<double>(shape.head_dim);
  const double weight = (0.3 * d * d + 300) * unit<Compute<T>>();
  CHECK(largest_error(packed.y, want.y) <= weight + unit<T>());
  CHECK(largest_error(packed.lse, want.lse) <= weight + 8 * unit<Compute<T>>());
  // The slope of a score is a weight times a difference of two sums of head_dim products below 1; mean takes y as it
  // was stored. dq sums slopes with keys, dk and dv sum over the up to 130 rows of every head of the group.
  const double slope = kScale * (2 * d * weight + d * unit<T>() + d * d * unit<Compute<T>>());
  const double rows = 130.0 * static_cast<double>(shape.group());
  const double sums = rows * rows * unit<Compute<T>>();
  CHECK(largest_error(packed.dq, want.dq) <= 2 * slope + 4 * d * unit<T>());
  CHECK(largest_error(packed.dk, want.dk) <= rows * slope + sums + rows * unit<T>());
  CHECK(largest_error(packed.dv, want.dv) <= rows * weight + sums + rows * unit<T>());
}

TEMPLATE_TEST_CASE("a sequence alone, packed, and decoded over pages: the same bits", "", float, double, bf16, fp16) {
  using T = TestType;
  const std::vector<int32_t> lengths{1, 2, 15, 16, 17, 33, 70, 131};
  for (const Format format : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2}) {
    for (const double scale : {1.0, 0.37}) {
      const AttentionShape shape = scale == 1.0 ? AttentionShape{} : AttentionShape{3, 1, 32};
      Packed<T> packed(lengths, 20, 1.5, shape);
      cpu::round_values(packed.k.data(), packed.k.data(), format, scale, static_cast<int64_t>(packed.k.size()));
      cpu::round_values(packed.v.data(), packed.v.data(), format, scale, static_cast<int64_t>(packed.v.size()));
      // Rounding twice must change nothing, else the cache would hold other values than the packed pass uses.
      const auto rounded = packed.k;
      cpu::round_values(packed.k.data(), packed.k.data(), format, scale, static_cast<int64_t>(packed.k.size()));
      CHECK(same_bits(rounded, packed.k));
      packed.run();
      for (int64_t s = 0; s < packed.sequences(); ++s) {
        const int64_t row = shape.heads * shape.head_dim;
        const std::vector<T> want(packed.y.begin() + packed.starts[s] * row,
                                  packed.y.begin() + packed.starts[s + 1] * row);
        INFO(format_name(format) << " scale " << scale << ", length " << lengths[s]);
        CHECK(same_bits(want, packed.alone(s).y));
        CHECK(same_bits(want, decode(packed, s, format, scale, 4, 1)));
        CHECK(same_bits(want, decode(packed, s, format, scale, 16, 1)));
        CHECK(same_bits(want, decode(packed, s, format, scale, 4, 7)));
        CHECK(same_bits(want, decode(packed, s, format, scale, 16, 131)));
      }
    }
  }
}

TEMPLATE_TEST_CASE("every code of the cache decodes alike on every instruction set", "", float, bf16, fp16) {
  using T = TestType;
  const double scale = GENERATE(1.0, 0.37, 0x1p-130, 0x1p122);
  // 256 or 65536 codes, in rows of 59: pairs of vectors, one vector and a rest.
  constexpr int64_t kRow = 59, kOut = 64;
  const auto check = [&]<Format F>(std::integral_constant<Format, F>) {
    using Code = typename KvCode<F>::type;
    const int64_t rows = (int64_t{1} << (8 * sizeof(Code))) / kRow + 1;
    std::vector<Code> codes(static_cast<size_t>(rows * kRow));
    for (size_t i = 0; i < codes.size(); ++i) std::memcpy(static_cast<void*>(&codes[i]), &i, sizeof(Code));
    std::vector<float> out(static_cast<size_t>(rows * kOut));
    const cpu::KvDecode args{codes.data(), F,          dtype_of<T>(), static_cast<float>(scale), rows, kRow,
                             kRow,         out.data(), kOut};
    for (int set = 0; set < cpu::instruction_sets(); ++set) {
      cpu::use_instruction_set(set);
      cpu::decode_kv_rows(args);
      for (int64_t i = 0; i < rows * kRow; ++i) {
        const float got = out[i / kRow * kOut + i % kRow];
        const float want = load(decode_kv<F, T>(codes[i], static_cast<float>(scale)));
        INFO(format_name(F) << " code " << i << ": " << got << ", not " << want);
        REQUIRE((std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want) || (got != got && want != want)));
      }
    }
    cpu::use_best_instruction_set();
  };
  check(std::integral_constant<Format, Format::bf16>());
  check(std::integral_constant<Format, Format::fp16>());
  check(std::integral_constant<Format, Format::e4m3>());
  check(std::integral_constant<Format, Format::e5m2>());
}

TEST_CASE("attention's gradients") {
  Packed<double> packed({3, 1, 18}, 30);
  packed.run();
  packed.run_backward();
  const auto dq = packed.dq, dk = packed.dk, dv = packed.dv;
  const auto loss = [&] {
    packed.run();
    return dot(packed.y, packed.dy);
  };
  check_gradient(packed.q, dq, loss);
  check_gradient(packed.k, dk, loss);
  check_gradient(packed.v, dv, loss);
}

TEMPLATE_TEST_CASE("attention on threads: the same bits", "", float, bf16) {
  using T = TestType;
  // The second is one long sequence of one head of keys, which threads share by blocks of rows and tiles of keys.
  Packed<T> many({40, 1, 130, 64, 64, 7, 90}, 40), one({400}, 41, 1.5, {2, 1, 20});
  const auto serial = many.results(), serial_one = one.results();
  const auto decoded = decode(many, 2, Format::fp32, 1.0, 16, 130);
  for (const int threads : {2, 4}) {
    const Threads scope(threads);
    CHECK(same_bits(serial, many.results()));
    CHECK(same_bits(serial_one, one.results()));
    CHECK(same_bits(decoded, decode(many, 2, Format::fp32, 1.0, 16, 130)));
  }
}

TEMPLATE_TEST_CASE("attention on every instruction set: the same bits", "", float, double, bf16) {
  using T = TestType;
  const int count = cpu::instruction_sets();
  Packed<T> packed({1, 12, 130}, 45, 1.5, {6, 2, 36});
  const auto want = packed.results();
  const std::vector<Format> formats{Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2};
  std::vector<std::vector<T>> decoded;
  for (const Format format : formats) decoded.push_back(decode(packed, 1, format, 0.7, 4, 1));
  for (int i = 0; i < count; ++i) {
    cpu::use_instruction_set(i);
    CHECK(same_bits(want, packed.results()));
    for (size_t f = 0; f < formats.size(); ++f) CHECK(same_bits(decoded[f], decode(packed, 1, formats[f], 0.7, 4, 1)));
  }
  cpu::use_best_instruction_set();
}

TEST_CASE("attention: nothing, large scores, and NaN") {
  Packed<float> none({}, 50);
  none.run();
  none.run_backward();
  cpu::paged_attention<float>({});
  Packed<float> gaps({0, 2, 0, 0, 3, 0}, 50), whole({2, 3}, 50);
  CHECK(same_bits(gaps.results(), whole.results()));
  Packed<float> one({1}, 51);
  one.run();
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t d = 0; d < 12; ++d) CHECK(one.y[h * 12 + d] == one.v[h / 2 * 12 + d]);
  Packed<float> large({20}, 52, 300.0);
  large.run();
  large.run_backward();
  for (const auto* part : {&large.y, &large.dq, &large.dk, &large.dv})
    for (const float y : *part) REQUIRE(std::isfinite(y));
  Packed<float> bad({5, 5}, 53);
  bad.k[(2 * 2) * 12] = kNan;
  bad.run();
  for (int64_t i = 0; i < 10; ++i) {
    const bool poisoned = i >= 2 && i < 5;  // causal, within its own sequence, in the heads of that key
    CHECK(std::isnan(bad.y[i * 4 * 12]) == poisoned);
    CHECK_FALSE(std::isnan(bad.y[(i * 4 + 3) * 12]));
  }
}

TEST_CASE("what a row must not see does not touch its bits") {
  const float poison = std::array{kNan, kInf, -kInf}[GENERATE(0u, 1u, 2u)];
  const AttentionShape shape{2, 1, 16};
  Packed<float> clean({70}, 60, 1.5, shape), bad = clean;
  const auto want = clean.results();
  constexpr int64_t kRow = 37;  // within a tile of keys, a tile of rows and a vector
  for (int64_t d = 0; d < 16; ++d) bad.k[kRow * 16 + d] = bad.v[kRow * 16 + d] = poison;
  bad.run();
  for (int64_t i = 0; i < kRow * 2 * 16; ++i)
    REQUIRE(std::bit_cast<uint32_t>(bad.y[i]) == std::bit_cast<uint32_t>(clean.y[i]));
  bad.k = clean.k;
  bad.v = clean.v;
  bad.run();
  for (int64_t d = 0; d < 32; ++d) bad.dy[kRow * 32 + d] = poison;
  bad.run_backward();
  for (int64_t i = (kRow + 1) * 16; i < 70 * 16; ++i) {
    REQUIRE(std::bit_cast<uint32_t>(bad.dk[i]) == std::bit_cast<uint32_t>(clean.dk[i]));
    REQUIRE(std::bit_cast<uint32_t>(bad.dv[i]) == std::bit_cast<uint32_t>(clean.dv[i]));
  }
  for (int64_t i = 0; i < 70 * 32; ++i)
    if (i / 32 != kRow) REQUIRE(std::bit_cast<uint32_t>(bad.dq[i]) == std::bit_cast<uint32_t>(clean.dq[i]));
  CHECK_FALSE(std::isfinite(bad.dq[kRow * 32]));
  CHECK(same_bits(want, clean.results()));
}

TEST_CASE("scores of minus infinity weigh nothing") {
  const AttentionShape shape{1, 1, 8};
  Packed<float> packed({130}, 61, 1.5, shape);
  for (float& x : packed.q) x = std::fabs(x) + 0.1f;
  // A whole tile of keys and some of the next.
  for (int64_t j = 0; j < 70; ++j)
    for (int64_t d = 0; d < 8; ++d) packed.k[j * 8 + d] = -kInf;
  Packed<float> finite = packed;
  for (float& x : finite.k) x = x == -kInf ? -1e30f : x;
  packed.run();
  finite.run();
  for (int64_t i = 0; i < 130 * 8; ++i) {
    if (i < 70 * 8)
      REQUIRE(std::isnan(packed.y[i]));  // no weight at all
    else
      REQUIRE(std::bit_cast<uint32_t>(packed.y[i]) == std::bit_cast<uint32_t>(finite.y[i]));
    REQUIRE(std::isfinite(finite.y[i]));
  }
}

TEST_CASE("equal scores give the mean of the values") {
  Packed<float> packed({100}, 62, 1.5, {1, 1, 4});
  std::fill(packed.k.begin(), packed.k.end(), 0.5f);
  packed.run();
  std::vector<double> sum(4);
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t d = 0; d < 4; ++d) {
      sum[d] += packed.v[i * 4 + d];
      // Chains of up to 100 values below 1.5, then a division.
      REQUIRE(std::fabs(packed.y[i * 4 + d] - sum[d] / static_cast<double>(i + 1)) <= 110 * 1.5 * unit<float>());
    }
  }
}

}  // namespace motley::kernels
