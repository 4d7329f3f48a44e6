// The loops that are compiled per instruction set: on each the bits of their plain definitions.
#include "tests/kernels/instruction_sets.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/elementwise_inner.h"
#include "kernels/cpu/head_inner.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/head.h"
#include "kernels/math.h"
#include "kernels/philox.h"
#include "tests/kernels/instruction_sets.h"

using namespace motley::kernels;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Around the vector widths and the tile of 256, and a length of many of each.
constexpr int64_t kLengths[] = {0, 1, 7, 8, 15, 16, 17, 31, 33, 255, 256, 257, 1003};

std::vector<float> numbers(int64_t count, uint64_t seed, float scale) {
  RandomStream random({seed, Purpose::data, 0, 0});
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * static_cast<float>(random.normal());
  return values;
}
template <class T>
std::vector<T> numbers_as(int64_t count, uint64_t seed, float scale) {
  std::vector<T> out;
  for (const float value : numbers(count, seed, scale)) out.push_back(T(value));
  return out;
}

/// NaN equals NaN whatever its payload; all else by bits, the sign of zero included.
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(cpu::load(a[i])), y = static_cast<double>(cpu::load(b[i]));
    if (!(std::isnan(x) && std::isnan(y)) && std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return false;
  }
  return a.size() == b.size();
}
bool same(float a, float b) { return same(std::vector<float>{a}, std::vector<float>{b}); }

/// Rows of logits: ordinary, far apart, and with every special value.
std::vector<std::vector<float>> logit_rows(int64_t count) {
  std::vector<std::vector<float>> rows{numbers(count, 1, 3.0f), numbers(count, 2, 60.0f), numbers(count, 3, 0.0f)};
  for (const float special : {kInf, -kInf, kNan, -0.0f, 1e-40f}) {
    rows.push_back(numbers(count, 4, 1.0f));
    if (count > 0) rows.back()[static_cast<size_t>(count / 2)] = special;
  }
  rows.emplace_back(static_cast<size_t>(count), -kInf);
  return rows;
}

}  // namespace

TEST_CASE("the head's passes over a row have the bits of their definitions") {
  on_every_instruction_set([] {
    for (const int64_t count : kLengths) {
      for (const std::vector<float>& row : logit_rows(count)) {
        const float* z = row.data();
        const float lse = 0.75f, entropy = 1.5f, a = -0.3f;
        CHECK(same(cpu::row_largest(z, count), cpu::max_lanes(z, count)));
        CHECK(same(cpu::row_exp_sum(z, count, 0.5f),
                   cpu::sum_lanes<float>(count, [&](int64_t i) { return exponential(z[i] - 0.5f); })));
        CHECK(same(cpu::row_p_log_p(z, count, lse), cpu::sum_lanes<float>(count, [&](int64_t i) {
                     const float log_p = z[i] - lse, p = exponential(log_p);
                     return p == 0.0f ? 0.0f : p * log_p;
                   })));
        for (const float c : {0.0f, 0.2f}) {
          std::vector<float> found = row, wanted = row;
          cpu::row_cotangents(found.data(), found.data(), count, lse, entropy, a, c);
          for (float& value : wanted) {
            const float log_p = value - lse, p = exponential(log_p);
            value = c == 0.0f ? a * p : p == 0.0f ? 0.0f : p * (a - c * (log_p + entropy));
          }
          CHECK(same(found, wanted));
        }
        std::vector<float> found = row, wanted = row;
        cpu::row_divide(found.data(), count, 0.7f);
        for (float& value : wanted) value /= 0.7f;
        CHECK(same(found, wanted));
      }
    }
  });
}

TEMPLATE_TEST_CASE("elementwise loops have the bits of their definitions", "", float, bf16, fp16) {
  using T = TestType;
  on_every_instruction_set([] {
    for (const int64_t count : kLengths) {
      auto gate = numbers_as<T>(count, 5, 4.0f), up = numbers_as<T>(count, 6, 2.0f), dy = numbers_as<T>(count, 7, 1.0f);
      const float specials[] = {kInf, -kInf, kNan, -0.0f, 1000.0f, -1000.0f};
      for (size_t i = 0; i < std::min<size_t>(gate.size(), 6); ++i) gate[i] = T(specials[i]);
      std::vector<T> y = gate, dgate = gate, dup = gate, sum = gate, y2 = gate, dgate2 = gate, dup2 = gate, sum2 = gate;
      std::vector<T> again = gate, in_place = dy;
      cpu::loops_of<T>().silu_mul({y.data(), gate.data(), up.data(), count}, 0, count);
      cpu::loops_of<T>().silu_mul_backward({dgate.data(), dup.data(), dy.data(), gate.data(), up.data(), count}, 0,
                                           count);
      cpu::loops_of<T>().silu_mul_backward(
          {in_place.data(), dup.data(), in_place.data(), gate.data(), up.data(), count, again.data()}, 0, count);
      cpu::loops_of<T>().add(sum.data(), up.data(), dy.data(), count);
      for (size_t i = 0; i < gate.size(); ++i) {
        const float g = cpu::load(gate[i]), u = cpu::load(up[i]), d = cpu::load(dy[i]);
        const float s = 1.0f / (1.0f + exponential(-g));
        y2[i] = cpu::store<T>(g * s * u);
        dup2[i] = cpu::store<T>(d * (g * s));
        dgate2[i] = cpu::store<T>(d * u * (s * (1.0f + g * (1.0f - s))));
        sum2[i] = cpu::store<T>(u + d);
      }
      CHECK(same(y, y2));
      CHECK(same(again, y2));
      CHECK(same(in_place, dgate2));
      CHECK(same(dgate, dgate2));
      CHECK(same(dup, dup2));
      CHECK(same(sum, sum2));
    }
  });
}

TEMPLATE_TEST_CASE("norm and rotation have the bits of their definitions", "", float, bf16, fp16) {
  using T = TestType;
  on_every_instruction_set([] {
    for (const int64_t cols : {1, 6, 16, 34, 130}) {
      const auto x = numbers_as<T>(2 * cols, 8, 1.0f), gain = numbers_as<T>(cols, 9, 1.0f);
      const auto dy = numbers_as<T>(2 * cols, 10, 1.0f);
      std::vector<T> y(x.size()), dx(x.size()), y2(x.size()), dx2(x.size());
      std::vector<float> rstd(2), rstd2(2), dgain = numbers(cols, 11, 1.0f), dgain2 = dgain;
      const RmsNormBackwardArgs<T> args{dx.data(),   dgain.data(), dy.data(), x.data(),
                                        gain.data(), rstd.data(),  2,         cols};
      cpu::loops_of<T>().norm({y.data(), rstd.data(), x.data(), gain.data(), 2, cols, 1e-6}, 0, 2);
      cpu::loops_of<T>().norm_dx(args, 0, 2);
      cpu::loops_of<T>().norm_dgain(args, 0, cols);
      for (size_t r = 0; r < 2; ++r) {
        std::vector<float> row, scaled;
        const auto at = [&](int64_t c) { return r * static_cast<size_t>(cols) + static_cast<size_t>(c); };
        const auto g = [&](int64_t c) { return cpu::load(gain[static_cast<size_t>(c)]); };
        for (int64_t c = 0; c < cols; ++c) row.push_back(cpu::load(x[at(c)]));
        for (int64_t c = 0; c < cols; ++c) scaled.push_back(cpu::load(dy[at(c)]) * g(c));
        const auto size = static_cast<float>(cols);
        rstd2[r] = 1.0f / std::sqrt(cpu::dot_lanes(row.data(), row.data(), cols) / size + 1e-6f);
        const float pull = cpu::dot_lanes(scaled.data(), row.data(), cols) / size * rstd2[r] * rstd2[r];
        for (int64_t c = 0; c < cols; ++c) {
          const auto i = static_cast<size_t>(c);
          y2[at(c)] = cpu::store<T>(row[i] * rstd2[r] * g(c));
          dx2[at(c)] = cpu::store<T>(rstd2[r] * std::fma(-row[i], pull, scaled[i]));
          dgain2[i] = std::fma(cpu::load(dy[at(c)]), row[i] * rstd2[r], dgain2[i]);
        }
      }
      CHECK(same(rstd, rstd2));
      CHECK(same(y, y2));
      CHECK(same(dx, dx2));
      CHECK(same(dgain, dgain2));
    }
    for (const int64_t half : {1, 5, 16, 33, 257}) {
      const auto x = numbers_as<T>(2 * half, 12, 1.0f);
      const auto cosine = numbers(half, 13, 0.6f), sine = numbers(half, 14, 0.6f);
      const int32_t position = 0;
      for (const bool inverse : {false, true}) {
        std::vector<T> y = x, y2 = x;  // in place
        cpu::loops_of<T>().rope({y.data(), y.data(), &position, cosine.data(), sine.data(), 1, 1, 2 * half, inverse}, 0,
                                1);
        for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
          const size_t j = i + static_cast<size_t>(half);
          const float a = cpu::load(x[i]), b = cpu::load(x[j]), s = inverse ? -sine[i] : sine[i];
          y2[i] = cpu::store<T>(std::fma(a, cosine[i], -(b * s)));
          y2[j] = cpu::store<T>(std::fma(b, cosine[i], a * s));
        }
        CHECK(same(y, y2));
      }
    }
  });
}

TEST_CASE("adamw and the sum of squares have the bits of their definitions") {
  on_every_instruction_set([] {
    for (const int64_t count : kLengths) {
      std::vector<float> w = numbers(count, 15, 1.0f), m = numbers(count, 16, 0.1f), v = numbers(count, 17, 0.1f);
      for (float& value : v) value *= value;
      const std::vector<float> g = numbers(count, 18, 1.0f);
      std::vector<float> w2 = w, m2 = m, v2 = v;
      const AdamWNumbers<float> n{0.5f, 1e-8f, 0.9f, 0.95f, 0.1f, 0.05f, 1e-3f, 1.2f, 0.999f};
      cpu::adamw_range(AdamWArgs<float>{w.data(), m.data(), v.data(), g.data(), count}, n, 0, count);
      double lane[cpu::kLanes] = {};
      for (size_t i = 0; i < w.size(); ++i) {
        const float slope = g[i] * n.scale;
        m2[i] = std::fma(n.rest1, slope, n.beta1 * m2[i]);
        v2[i] = std::fma(n.rest2 * slope, slope, n.beta2 * v2[i]);
        w2[i] = std::fma(-n.rate, m2[i] / (std::sqrt(v2[i] * n.inverse2) + n.eps), w2[i] * n.keep);
        lane[i % cpu::kLanes] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
      }
      CHECK(same(w, w2));
      CHECK(same(m, m2));
      CHECK(same(v, v2));
      CHECK(cpu::square_sum(g.data(), count) == cpu::add_lanes(lane));
    }
  });
}

/// Everything that the head and its way back give, with room for the logits of the first `kept` rows. Row r selects
/// r % 3 ids; some rows have no cotangent, some one of the entropy.
template <class T>
std::vector<Compute<T>> head_results(int64_t rows, int64_t vocabulary, double temperature, int64_t kept) {
  using C = Compute<T>;
  constexpr int64_t kWidth = 6;
  const auto hidden = numbers_as<T>(rows * kWidth, 19, 1.0f), weight = numbers_as<T>(vocabulary * kWidth, 20, 1.0f);
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> ids;
  std::vector<C> slopes, entropy_slopes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < r % 3; ++k) ids.push_back(static_cast<int32_t>((7 * r + 11 * k) % vocabulary));
    offsets.push_back(static_cast<int64_t>(ids.size()));
    while (slopes.size() < ids.size()) slopes.push_back(r % 4 == 2 ? C(0) : C(1) - C(r % 5));
    entropy_slopes.push_back(r % 2 == 0 ? C(0) : C(0.1));
  }
  const auto count = static_cast<size_t>(rows);
  std::vector<C> log_p(ids.size()), outside(count), entropy(count), lse(count);
  std::vector<C> results(weight.size()), logits(static_cast<size_t>(kept * vocabulary));
  std::vector<T> dhidden(hidden.size());
  HeadArgs<T> args{.hidden = hidden.data(), .weight = weight.data(), .rows = rows, .width = kWidth};
  args.vocabulary = vocabulary;
  args.temperature = temperature;
  args.selected = {offsets.data(), ids.data()};
  args.log_p = log_p.data();
  args.log_outside = outside.data();
  args.entropy = entropy.data();
  args.lse = lse.data();
  args.kept_logits = logits.data();
  args.kept_rows = kept;
  cpu::head(args);
  cpu::head_backward<T>({args, slopes.data(), entropy_slopes.data(), dhidden.data(), results.data()});
  for (const auto* part : {&log_p, &outside, &entropy, &lse}) results.insert(results.end(), part->begin(), part->end());
  for (const T value : dhidden) results.push_back(cpu::load(value));
  return results;
}

TEMPLATE_TEST_CASE("logits kept for the head's way back change no bit", "", float, double, bf16) {
  for (const double temperature : {1.0, 0.7}) {
    const auto none = head_results<TestType>(5, 21, temperature, 0);
    for (const int64_t kept : {1, 3, 5}) CHECK(same(none, head_results<TestType>(5, 21, temperature, kept)));
    // So many logits that they come in chunks: of 64 rows for a vocabulary of 4096.
    const auto many = head_results<TestType>(70, 4096, temperature, 0);
    for (const int64_t kept : {66, 70}) CHECK(same(many, head_results<TestType>(70, 4096, temperature, kept)));
  }
}
