#include "kernels/sampling.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/head.h"
#include "tests/kernels/sampling_reference.h"

namespace motley::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Draw draw(const std::vector<float>& logits, const SamplingRule& rule, double uniform) {
  std::vector<float> scaled;
  return cpu::draw_token(logits.data(), static_cast<int64_t>(logits.size()), rule, uniform, scaled);
}

void require_same(const Draw& a, const Draw& b) {
  REQUIRE(a.id == b.id);
  REQUIRE(std::bit_cast<uint32_t>(a.log_q) == std::bit_cast<uint32_t>(b.log_q));
  REQUIRE(a.candidates == b.candidates);
}

}  // namespace

TEST_CASE("draws are those of plain loops, bit for bit, on every instruction set") {
  for (int set = 0; set < cpu::instruction_sets(); ++set) {
    cpu::use_instruction_set(set);
    for (const int64_t vocabulary : {1, 15, 17, 128, 129, 1023, 1024, 1025, 5000, 40001}) {
      for (int kind = 0; kind < kRowKinds; ++kind) {
        INFO("set " << set << ", vocabulary " << vocabulary << ", kind " << kind);
        const auto logits = row_of_kind(kind, vocabulary, 11 + static_cast<uint64_t>(kind));
        for (const SamplingRule rule :
             {SamplingRule{0.8, 1.0, 0}, SamplingRule{0.8, 0.99, 0}, SamplingRule{0.8, 0.3, 0},
              SamplingRule{1.0, 1.0, 50}, SamplingRule{1.0, 0.9, 700}}) {
          for (const double uniform : {0x1p-53, 0.31, 0.998})
            require_same(draw(logits, rule, uniform), naive_draw(logits, rule, uniform));
        }
      }
    }
  }
  cpu::use_best_instruction_set();
}

TEST_CASE("the most probable ids are those of full sorting") {
  for (const int64_t vocabulary : {1, 20, 128, 129, 3000, 40001}) {
    for (int kind = 0; kind < kRowKinds; ++kind) {
      const auto z = row_of_kind(kind, vocabulary, 31);
      std::vector<int32_t> sorted(z.size());
      std::iota(sorted.begin(), sorted.end(), 0);
      sorted = naive_most_probable(z, sorted, sorted.size());
      for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{100}, vocabulary - 1, vocabulary, vocabulary + 5}) {
        if (k < 1) continue;
        std::vector<int32_t> expected(sorted.begin(), sorted.begin() + std::min(k, vocabulary));
        std::sort(expected.begin(), expected.end());
        const auto ids = cpu::most_probable(z.data(), vocabulary, k);
        REQUIRE(std::vector<int32_t>(ids.begin(), ids.end()) == expected);
      }
    }
  }
}

TEST_CASE("greedy takes the first largest logit, log_q at temperature 1") {
  const Draw greedy = draw({1, 3, 2, 3}, {.temperature = 0, .top_p = 0.5, .top_k = 2}, 0.99);
  CHECK(greedy.id == 1);
  CHECK(greedy.candidates.empty());
  CHECK(greedy.log_q == Approx(3 - std::log(std::exp(1) + 2 * std::exp(3) + std::exp(2))).epsilon(1e-6));
}

TEST_CASE("inverse CDF over ascending ids") {
  const std::vector<float> logits{std::log(1.0f), std::log(2.0f), std::log(4.0f), std::log(1.0f)};
  CHECK(draw(logits, {}, 1e-12).id == 0);
  CHECK(draw(logits, {}, 0.124).id == 0);
  CHECK(draw(logits, {}, 0.126).id == 1);
  CHECK(draw(logits, {}, 0.374).id == 1);
  CHECK(draw(logits, {}, 0.376).id == 2);
  CHECK(draw(logits, {}, 0.874).id == 2);
  CHECK(draw(logits, {}, 0.876).id == 3);
  CHECK(draw(logits, {}, 1.0 - 0x1p-53).id == 3);
  CHECK(draw(logits, {}, 0.5).candidates.empty());
}

TEST_CASE("frequencies are the probabilities") {
  const std::vector<float> logits{0.3f, -1.0f, 2.0f, 0.0f, 1.0f};
  for (const SamplingRule rule : {SamplingRule{0.7, 1.0, 0}, SamplingRule{1.5, 0.9, 0}, SamplingRule{1.0, 1.0, 2}}) {
    std::vector<double> seen(5), p(5);
    const auto support = naive_candidates(logits, rule);
    double total = 0;
    for (const int32_t id : support) total += p[id] = std::exp(logits[id] / rule.temperature);
    constexpr int kDraws = 10000;  // an even grid of uniforms: each id errs by at most its two ends
    for (int i = 0; i < kDraws; ++i) {
      const Draw one = draw(logits, rule, (i + 0.5) / kDraws);
      seen[one.id] += 1.0 / kDraws;
      REQUIRE(one.log_q == Approx(std::log(p[one.id] / total)).margin(1e-6));
    }
    for (int id = 0; id < 5; ++id) CHECK(std::fabs(seen[id] - p[id] / total) <= 2.0 / kDraws);
  }
}

TEST_CASE("candidate sets: the id that crosses is in, ties go to lower ids") {
  const std::vector<float> even(8, 1.0f);
  CHECK(draw(even, {.top_p = 0.5}, 0.3).candidates == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(draw(even, {.top_p = 0.51}, 0.3).candidates == std::vector<int32_t>{0, 1, 2, 3, 4});
  CHECK(draw(even, {.top_k = 3}, 0.3).candidates == std::vector<int32_t>{0, 1, 2});
  CHECK(draw(even, {.top_p = 0.5, .top_k = 3}, 0.3).candidates == std::vector<int32_t>{0, 1});
  CHECK(draw(even, {.top_k = 100}, 0.3).candidates.size() == 8);
  CHECK(draw({0, 5, 0, 5}, {.top_p = 0.7}, 0.9).candidates == std::vector<int32_t>{1, 3});
  CHECK(draw({0, 50, 0, 5}, {.top_p = 1e-9}, 0.9).candidates == std::vector<int32_t>{1});
  CHECK(draw({0, 50, 0, 5}, {.top_p = 1e-9}, 0.9).log_q == 0.0f);
}

TEST_CASE("candidate sets agree with full sorting, for small and large vocabularies") {
  for (const int64_t vocabulary : {1, 2, 20, 63, 64, 65, 600, 20000}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      auto logits = values<float>(vocabulary, seed, seed % 2 == 0 ? 8.0 : 0.5);
      if (seed >= 4)
        for (float& x : logits) x = std::round(x);  // many ties
      for (const double top_p : {0.1, 0.7, 0.99, 0.999999, 1.0}) {
        for (const int32_t top_k : {0, 1, 10, 100}) {
          if (top_p == 1.0 && top_k == 0) continue;
          const SamplingRule rule{1.3, top_p, top_k};
          const Draw one = draw(logits, rule, 0.77);
          REQUIRE(one.candidates == naive_candidates(logits, rule));
          REQUIRE(std::binary_search(one.candidates.begin(), one.candidates.end(), one.id));
        }
      }
    }
  }
}

TEST_CASE("log_q is the head's log_p, bit for bit") {
  const int64_t width = 24;
  for (const int64_t vocabulary : {20, 301}) {
    const auto hidden = values<bf16>(width, 1, 1.5), weight = values<bf16>(vocabulary * width, 2);
    // The head's raw products: with one hidden row and temperature 1, log p of every id plus lse are not exact, so the
    // logits are made as the head makes them.
    std::vector<float> logits;
    for (int64_t v = 0; v < vocabulary; ++v) {
      float sum = 0;
      for (int64_t c = 0; c < width; ++c)
        sum = std::fma(static_cast<float>(hidden[c]), static_cast<float>(weight[v * width + c]), sum);
      logits.push_back(sum);
    }
    for (const SamplingRule rule : {SamplingRule{1.0, 1.0, 0}, SamplingRule{0.6, 1.0, 0}, SamplingRule{0.6, 0.9, 0},
                                    SamplingRule{1.7, 0.99, 18}}) {
      for (const double uniform : {0.01, 0.3, 0.6, 0.97}) {
        const Draw one = draw(logits, rule, uniform);
        const std::vector<int64_t> offsets{0, 1}, candidate_offsets{0, static_cast<int64_t>(one.candidates.size())};
        float log_p;
        cpu::head<bf16>({hidden.data(),
                         weight.data(),
                         1,
                         width,
                         vocabulary,
                         rule.temperature,
                         {offsets.data(), &one.id},
                         one.candidates.empty() ? IdLists{} : IdLists{candidate_offsets.data(), one.candidates.data()},
                         &log_p,
                         nullptr,
                         nullptr,
                         nullptr});
        CHECK(std::bit_cast<uint32_t>(log_p) == std::bit_cast<uint32_t>(one.log_q));
      }
    }
  }
}

TEST_CASE("-inf is never drawn; NaN, +inf and no finite logit are refused") {
  const std::vector<float> logits{-kInf, 0.0f, -kInf, 1.0f, -kInf};
  for (const SamplingRule rule : {SamplingRule{}, SamplingRule{1.0, 0.999, 0}, SamplingRule{1.0, 1.0, 4}}) {
    for (const double uniform : {0x1p-53, 0.2, 0.5, 1.0 - 0x1p-53}) {
      const Draw one = draw(logits, rule, uniform);
      CHECK((one.id == 1 || one.id == 3));
      if (!one.candidates.empty()) CHECK(one.candidates == std::vector<int32_t>{1, 3});
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    CHECK_THROWS_AS(draw({0.0f, nan}, {.temperature = temperature}, 0.5), std::runtime_error);
    CHECK_THROWS_AS(draw({0.0f, kInf}, {.temperature = temperature}, 0.5), std::runtime_error);
    CHECK_THROWS_AS(draw({-kInf, -kInf}, {.temperature = temperature}, 0.5), std::runtime_error);
    CHECK_THROWS_AS(draw({}, {.temperature = temperature}, 0.5), std::runtime_error);
  }
}

TEST_CASE("masses are exact sums: rounded to 2^-42, between nothing and one, and never short of their target") {
  const double unit = 0x1p-42;
  for (const float e : {0.0f, 0x1p-149f, 0x1p-43f, 0x1.000002p-43f, 0x1.8p-42f, 0.3f, 0.999f, 1.0f}) {
    CHECK(std::fabs(static_cast<double>(mass_of(e)) * unit - static_cast<double>(e)) <= unit / 2);
    CHECK(mass_of(e) >= 0);
  }
  CHECK(mass_of(1.0f) == int64_t{1} << 42);
  CHECK(mass_of(0x1p-43f) == 0);  // a tie, to even
  CHECK(mass_of(0x1.000002p-43f) == 1);
  const int64_t most = kMostSampledIds * mass_of(1.0f);
  for (const int64_t total : {int64_t{1}, int64_t{2}, int64_t{1000}, mass_of(0.7f), most - 1, most}) {
    for (const double share : {1e-300, 0.25, 0.999999, 1.0}) {
      CHECK(mass_to_reach(share, total) >= 1);
      CHECK(mass_to_reach(share, total) <= total);
    }
    for (const double uniform : {0x1p-53, 0.25, 1.0 - 0x1p-53}) {
      CHECK(mass_to_exceed(uniform, total) >= 0);
      CHECK(mass_to_exceed(uniform, total) < total);
    }
  }
  CHECK(mass_to_reach(0.5, 1000) == 500);
  CHECK(mass_to_reach(0.5001, 1000) == 501);
  CHECK(mass_to_exceed(0.5, 1000) == 500);
  const std::vector<float> many(static_cast<size_t>(kMostSampledIds) + 1);
  CHECK_THROWS_WITH(draw(many, {}, 0.5), "draw_token: a vocabulary of 1048577 ids; at most 1048576 can be drawn from");
}

TEST_CASE("scaled ends as the logits divided by the temperature") {
  const std::vector<float> logits{1.0f, 2.0f, -3.0f};
  std::vector<float> scaled{9, 9, 9, 9, 9};
  cpu::draw_token(logits.data(), 3, {.temperature = 0.3}, 0.5, scaled);
  CHECK(scaled == std::vector<float>{1.0f / 0.3f, 2.0f / 0.3f, -3.0f / 0.3f});
}

}  // namespace motley::kernels
