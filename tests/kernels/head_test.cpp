#include "kernels/head.h"

#include <algorithm>
#include <limits>

#include "kernels/matmul.h"
#include "tests/kernels/gradient.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// A batch with selected ids and, when asked for, candidate sets of varying size that contain them.
template <class T>
struct Batch {
  int64_t rows, width, vocabulary;
  double temperature;
  std::vector<T> hidden, weight;
  std::vector<int64_t> offsets{0}, candidate_offsets{0};
  std::vector<int32_t> ids, candidates;
  bool restricted;
  std::vector<Compute<T>> log_p, log_outside, entropy, lse;

  Batch(int64_t rows_in, int64_t width_in, int64_t vocabulary_in, double temperature_in, bool restricted_in,
        uint64_t seed)
      : rows(rows_in),
        width(width_in),
        vocabulary(vocabulary_in),
        temperature(temperature_in),
        restricted(restricted_in) {
    hidden = values<T>(rows * width, seed, 1.5);
    weight = values<T>(vocabulary * width, seed + 1, 0.7);
    Values draw(seed + 2);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int32_t> support;
      for (int32_t v = 0; v < vocabulary; ++v)
        if (!restricted || draw.next() > 0.2 || v == r % vocabulary) support.push_back(v);
      candidates.insert(candidates.end(), support.begin(), support.end());
      candidate_offsets.push_back(static_cast<int64_t>(candidates.size()));
      // Row r selects r mod 4 ids, at most those of its support, in descending order.
      const int64_t count = std::min<int64_t>(r % 4, static_cast<int64_t>(support.size()));
      for (int64_t k = 0; k < count; ++k) ids.push_back(support[support.size() - 1 - static_cast<size_t>(k)]);
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    log_p.resize(ids.size());
    log_outside.resize(static_cast<size_t>(rows));
    entropy = lse = log_outside;
  }
  HeadArgs<T> args() {
    return {hidden.data(),
            weight.data(),
            rows,
            width,
            vocabulary,
            temperature,
            {offsets.data(), ids.data()},
            restricted ? IdLists{candidate_offsets.data(), candidates.data()} : IdLists{},
            log_p.data(),
            log_outside.data(),
            entropy.data(),
            lse.data()};
  }
};

}  // namespace

TEMPLATE_TEST_CASE("the head agrees with float64", "", float, double, bf16, fp16) {
  using T = TestType;
  for (const bool restricted : {false, true}) {
    for (const int64_t vocabulary : {1, 2, 17, 20, 100}) {
      Batch<T> b(9, 24, vocabulary, 0.8, restricted, 1);
      cpu::head(b.args());
      for (int64_t r = 0; r < b.rows; ++r) {
        std::vector<double> z;
        for (int64_t v = 0; v < vocabulary; ++v) {
          double sum = 0;
          for (int64_t c = 0; c < b.width; ++c)
            sum += real(b.hidden[r * b.width + c]) * real(b.weight[v * b.width + c]);
          z.push_back(sum / 0.8);
        }
        double mass = 0, weighted = 0, outside = 0;
        for (int64_t i = b.candidate_offsets[r]; i < b.candidate_offsets[r + 1]; ++i) {
          const int32_t id = b.candidates[i];
          const double e = std::exp(z[id]);
          mass += e;
          weighted += e * z[id];
          if (std::find(b.ids.begin() + b.offsets[r], b.ids.begin() + b.offsets[r + 1], id) ==
              b.ids.begin() + b.offsets[r + 1])
            outside += e;
        }
        // |z| < 24 * 1.05 / 0.8 < 32; it errs by 24 roundings of terms whose sizes sum to less than that, the sums over
        // the vocabulary by fewer than 30 more of size at most log 100 + 32.
        const double bound = (24 * 32 + 30 * 37) * unit<Compute<T>>();
        const double lse = std::log(mass);
        CHECK(std::fabs(b.lse[r] - lse) <= bound);
        CHECK(std::fabs(b.entropy[r] - (lse - weighted / mass)) <= 2 * bound);
        if (outside == 0)
          CHECK(b.log_outside[r] == -kInf);
        else
          CHECK(std::fabs(b.log_outside[r] - (std::log(outside) - lse)) <= 2 * bound);
        for (int64_t k = b.offsets[r]; k < b.offsets[r + 1]; ++k)
          CHECK(std::fabs(b.log_p[k] - (z[b.ids[k]] - lse)) <= 2 * bound);
      }
    }
  }
}

TEST_CASE("the head's gradients") {
  for (const bool restricted : {false, true}) {
    Batch<double> b(6, 5, 19, 0.7, restricted, 10);
    const auto d_log_p = values<double>(static_cast<int64_t>(b.ids.size()), 12), d_entropy = values<double>(b.rows, 13);
    std::vector<double> d_hidden(b.hidden.size(), 3.0), d_weight(b.weight.size(), 0.5);
    cpu::head(b.args());
    cpu::head_backward<double>({b.args(), d_log_p.data(), d_entropy.data(), d_hidden.data(), d_weight.data()});
    for (double& g : d_weight) g -= 0.5;  // it is accumulated
    const auto loss = [&] {
      cpu::head(b.args());
      return dot(b.log_p, d_log_p) + dot(b.entropy, d_entropy);
    };
    check_gradient(b.hidden, d_hidden, loss);
    check_gradient(b.weight, d_weight, loss);
  }
}

TEMPLATE_TEST_CASE("the head of a row alone, in a batch, on threads: the same bits", "", float, double, bf16, fp16) {
  using T = TestType;
  using C = Compute<T>;
  // More rows than one chunk.
  for (const bool restricted : {false, true}) {
    Batch<T> b(700, 32, 20, 1.3, restricted, 20);
    const auto d_log_p = values<C>(static_cast<int64_t>(b.ids.size()), 22), d_entropy = values<C>(b.rows, 23);
    const auto run = [&] {
      std::vector<T> d_hidden(b.hidden.size());
      std::vector<C> all(b.weight.size());
      cpu::head(b.args());
      cpu::head_backward<T>({b.args(), d_log_p.data(), d_entropy.data(), d_hidden.data(), all.data()});
      for (const T x : d_hidden) all.push_back(static_cast<C>(x));
      for (const auto* part : {&b.log_p, &b.log_outside, &b.entropy, &b.lse})
        all.insert(all.end(), part->begin(), part->end());
      return all;
    };
    const auto serial = run();
    for (const int threads : {2, 4}) {
      const Threads scope(threads);
      CHECK(same_bits(serial, run()));
    }
    const Batch<T> whole = b;
    for (const int64_t r : {0, 3, 511, 512, 699}) {
      HeadArgs<T> args = b.args();
      args.hidden += r * b.width;
      args.rows = 1;
      args.selected.offsets += r;
      if (restricted) args.candidates.offsets += r;
      std::vector<C> out(3);
      args.log_outside = &out[0];
      args.entropy = &out[1];
      args.lse = &out[2];
      cpu::head(args);
      CHECK(same_bits(out, {whole.log_outside[r], whole.entropy[r], whole.lse[r]}));
      CHECK(same_bits(b.log_p, whole.log_p));
    }
  }
}

TEMPLATE_TEST_CASE("the head's backward pass in blocks of ids has the bits of rows alone", "", float, bf16) {
  using T = TestType;
  using C = Compute<T>;
  for (const bool restricted : {false, true}) {
    // Two chunks of 320 rows, with and without kept logits, of two blocks each; a row alone is one block.
    Batch<T> b(640, 8, 1000, 1.3, restricted, 20);
    std::vector<C> logits(320 * 1000);
    HeadArgs<T> args = b.args();
    args.kept_logits = logits.data();
    args.kept_rows = 320;
    cpu::head(args);
    const std::vector<C> kept = logits;
    const auto d_log_p = values<C>(static_cast<int64_t>(b.ids.size()), 22), d_entropy = values<C>(b.rows, 23);
    std::vector<T> d_hidden(b.hidden.size()), d_hidden_alone = d_hidden;
    std::vector<C> d_weight(b.weight.size(), C{0.5}), d_weight_alone = d_weight;
    cpu::head_backward<T>({args, d_log_p.data(), d_entropy.data(), d_hidden.data(), d_weight.data()});
    CHECK(same_bits(logits, kept));
    for (int64_t r = 0; r < b.rows; ++r) {
      HeadArgs<T> row = b.args();
      row.rows = 1;
      row.hidden += r * b.width;
      row.selected.offsets += r;
      if (restricted) row.candidates.offsets += r;
      row.lse += r;
      row.entropy += r;
      cpu::head_backward<T>(
          {row, d_log_p.data(), d_entropy.data() + r, d_hidden_alone.data() + r * b.width, d_weight_alone.data()});
    }
    CHECK(same_bits(d_hidden, d_hidden_alone));
    CHECK(same_bits(d_weight, d_weight_alone));
    std::vector<C> added(b.weight.size()), set(b.weight.size(), C{7});
    cpu::head_backward<T>({args, d_log_p.data(), d_entropy.data(), d_hidden.data(), added.data()});
    cpu::head_backward<T>({args, d_log_p.data(), d_entropy.data(), d_hidden.data(), set.data(), true});
    CHECK(same_bits(set, added));
  }
}

TEST_CASE("a candidate set of the whole vocabulary is the vocabulary") {
  Batch<float> b(4, 16, 33, 1.0, false, 30);
  cpu::head(b.args());
  const auto plain = b.log_p, entropy = b.entropy;
  b.restricted = true;  // its candidates are all ids
  cpu::head(b.args());
  CHECK(same_bits(plain, b.log_p));
  CHECK(same_bits(entropy, b.entropy));
}

TEST_CASE("log_outside excludes the selected ids exactly") {
  // One id has all the mass but 1e-30: a difference of rounded sums would be 0.
  const std::vector<float> hidden{1}, weight{0.0f, -69.0f, -70.0f};
  const std::vector<int64_t> offsets{0, 1};
  const std::vector<int32_t> ids{0};
  float log_p, outside;
  cpu::head<float>({hidden.data(),
                    weight.data(),
                    1,
                    1,
                    3,
                    1.0,
                    {offsets.data(), ids.data()},
                    {},
                    &log_p,
                    &outside,
                    nullptr,
                    nullptr});
  CHECK(log_p == 0.0f);
  CHECK(outside == Approx(-69.0 + std::log1p(std::exp(-1.0))).epsilon(1e-6));
}

TEST_CASE("infinite log-probabilities and zero cotangents give no NaN") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> hidden{1, 1}, weight{0.5f, -inf, 1.0f};
  const std::vector<int64_t> offsets{0, 2, 4};
  const std::vector<int32_t> ids{1, 0, 1, 2};
  std::vector<float> log_p(4), outside(2), entropy(2), lse(2), d_hidden(2), d_weight(3);
  const HeadArgs<float> args{
      hidden.data(),  weight.data(),  2,         1, 3, 1.0, {offsets.data(), ids.data()}, {}, log_p.data(),
      outside.data(), entropy.data(), lse.data()};
  cpu::head(args);
  CHECK(log_p[0] == -inf);
  CHECK(log_p[2] == -inf);
  const double p = 1 / (1 + std::exp(0.5));
  CHECK(log_p[1] == Approx(std::log(p)));
  CHECK(entropy[0] == Approx(-p * std::log(p) - (1 - p) * std::log(1 - p)));
  // The id of infinite log p has cotangent 0; the weight's infinity makes d_hidden of a row with mass meaningless, so
  // only d_weight is looked at, which sees dz alone.
  const std::vector<float> d_log_p{0.0f, 1.0f, 0.0f, 0.0f}, d_entropy{0.5f, 0.0f};
  cpu::head_backward<float>({args, d_log_p.data(), d_entropy.data(), d_hidden.data(), d_weight.data()});
  for (const float g : d_weight) CHECK(std::isfinite(g));
  CHECK(d_weight[1] == 0.0f);
  CHECK(d_weight[0] != 0.0f);
}

TEST_CASE("a row without cotangents adds nothing, whatever its logits") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> hidden{1, 2}, weight{0.5f, nan};
  const std::vector<int64_t> offsets{0, 1, 2};
  const std::vector<int32_t> ids{0, 0};
  std::vector<float> log_p(2), entropy(2), lse(2), d_hidden(2), d_weight(2);
  const HeadArgs<float> args{
      hidden.data(), weight.data(),  2,         1, 2, 1.0, {offsets.data(), ids.data()}, {}, log_p.data(),
      nullptr,       entropy.data(), lse.data()};
  cpu::head(args);
  CHECK(std::isnan(log_p[0]));
  CHECK(std::isnan(lse[0]));
  const std::vector<float> zero{0, 0};
  cpu::head_backward<float>({args, zero.data(), nullptr, d_hidden.data(), d_weight.data()});
  CHECK(d_weight == zero);
}

TEST_CASE("log_sum_exp and its edges") {
  const double inf = kInf, nan = std::numeric_limits<double>::quiet_NaN();
  const auto of = [](const std::vector<double>& x) {
    double lse = 0;
    cpu::log_sum_exp(&lse, x.data(), 1, static_cast<int64_t>(x.size()));
    return lse;
  };
  CHECK(of({}) == -inf);
  CHECK(of({3.25}) == 3.25);
  CHECK(of({-inf, -inf}) == -inf);
  CHECK(of({-inf, 1.0}) == 1.0);
  CHECK(of({inf, 1.0}) == inf);
  CHECK(std::isnan(of({1.0, nan})));
  CHECK(std::isnan(of({-inf, nan})));
  CHECK(of({1000.0, 1000.0}) == Approx(1000.0 + std::log(2.0)).epsilon(1e-15));
  for (const int64_t count : {1, 15, 16, 17, 31, 100}) {
    const auto x = values<double>(count, 40, 5.0);
    double sum = 0;
    for (const double v : x) sum += std::exp(v);
    CHECK(of(x) == Approx(std::log(sum)).margin(1e-14));
  }
}

TEST_CASE("the head of no rows") {
  std::vector<float> d_weight{1, 2};
  const std::vector<float> weight{1, 2};
  HeadArgs<float> args{nullptr, weight.data(), 0, 1, 2, 1.0, {}, {}, nullptr, nullptr, nullptr, nullptr};
  cpu::head(args);
  cpu::head_backward<float>({args, nullptr, nullptr, nullptr, d_weight.data()});
  CHECK(d_weight == std::vector<float>{1, 2});
}

}  // namespace motley::kernels
