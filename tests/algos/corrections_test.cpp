// Every correction under every kind of record against the dense reference, and the properties that define score
// centering.
#include <catch2/catch.hpp>

#include "tests/algos/token_cases.h"

namespace motley::algos {
namespace {

using kernels::Purpose;
using kernels::RandomStream;
using reference::largest;
using reference::largest_difference;
using reference::logit_gradient;

const std::vector<std::string> kNames{"grpo", "mis", "sc", "sc+mis", "sc+tis", "sc+token-is", "tis", "token-is"};
constexpr size_t kVocabulary = 12;

TEST_CASE("coefficients give the logit gradient of the dense reference") {
  const auto name = GENERATE(from_range(kNames));
  const auto style = GENERATE(from_range(kRecordStyles));
  CAPTURE(name, style);
  const auto correction = make_correction(name);
  RandomStream random({11, Purpose::data, 0, 0});
  int masked = 0, outside_record = 0;
  for (int pair = 0; pair < 300; ++pair) {
    reference::Token token = random_token(random, kVocabulary, style, 0.8);
    for (token.drawn = 0; token.drawn < static_cast<int>(kVocabulary); ++token.drawn) {
      if (token.q[static_cast<size_t>(token.drawn)] == 0.0) continue;
      OwnedBatch batch;
      batch.append(token);
      const Coefficients out = batch.coefficients(*correction);
      const auto expected = logit_gradient(reference::dense_cotangents(name, token), token.p);
      const auto found = logit_gradient(batch.dense(out, 0, kVocabulary), token.p);
      // Both are float64 sums of some ten terms; the issue asks for 1e-6 of the largest entry. The reference's own
      // terms are of size |A|, so that an entry that cancels to nothing is measured against that.
      REQUIRE(largest_difference(found, expected) <= 1e-12 * std::max(largest(expected), std::abs(token.advantage)));
      masked += out.masked[0];
      outside_record += token.listed[static_cast<size_t>(token.drawn)] ? 0 : 1;
    }
  }
  // The case is worth something only if the band cuts and some drawn tokens are outside their record.
  CHECK((masked > 0) == (name == "mis" || name == "sc+mis"));
  CHECK((outside_record > 0) == (style == "top_k"));
}

TEST_CASE("a batch gives each token what it gets alone") {
  const auto name = GENERATE(from_range(kNames));
  const auto correction = make_correction(name);
  RandomStream random({12, Purpose::data, 0, 0});
  OwnedBatch together;
  std::vector<double> alone;
  for (int t = 0; t < 20; ++t) {
    reference::Token token = random_token(random, kVocabulary, kRecordStyles[static_cast<size_t>(t) % 3], 0.8);
    while (token.q[static_cast<size_t>(token.drawn)] == 0.0) ++token.drawn;
    OwnedBatch batch;
    batch.append(token);
    together.append(token);
    const Coefficients out = batch.coefficients(*correction);
    alone.insert(alone.end(), out.b.begin(), out.b.end());
  }
  CHECK(together.coefficients(*correction).b == alone);
}

TEST_CASE("score centering has no drift: at constant advantage the expected gradient under the sampler is 0") {
  const auto name = GENERATE(as<std::string>{}, "sc", "sc+mis", "sc+tis", "sc+token-is", "sc+dppo-tv", "sc+dppo-kl");
  const auto style = GENERATE(as<std::string>{}, "candidates", "full");  // exact supports
  CAPTURE(name, style);
  const auto correction = make_correction(name);
  const auto without_centering = make_correction(name == "sc" ? "grpo" : name.substr(3));
  RandomStream random({13, Purpose::data, 0, 0});
  for (int pair = 0; pair < 100; ++pair) {
    reference::Token token = random_token(random, kVocabulary, style, 0.8);
    token.advantage = 0.7;
    std::vector<double> drift(kVocabulary, 0.0), uncentered(kVocabulary, 0.0);
    for (token.drawn = 0; token.drawn < static_cast<int>(kVocabulary); ++token.drawn) {
      const double q = token.q[static_cast<size_t>(token.drawn)];
      if (q == 0.0) continue;
      OwnedBatch batch;
      batch.append(token);
      const auto add = [&](std::vector<double>& sum, const Correction& used) {
        const auto g = logit_gradient(batch.dense(batch.coefficients(used), 0, kVocabulary), token.p);
        for (size_t v = 0; v < kVocabulary; ++v) sum[v] += q * g[v];
      };
      add(drift, *correction);
      add(uncentered, *without_centering);
    }
    REQUIRE(largest(drift) < 1e-14);  // rounding of some 100 terms below 1
    if (name == "sc") REQUIRE(largest(uncentered) > 1e-3);
  }
}

TEST_CASE("score centering vanishes where there is no mismatch, and under weights that are never masked") {
  const auto style = GENERATE(from_range(kRecordStyles));
  CAPTURE(style);
  RandomStream random({14, Purpose::data, 0, 0});
  for (int pair = 0; pair < 50; ++pair) {
    reference::Token token = random_token(random, kVocabulary, style, 0.5);
    while (!token.listed[static_cast<size_t>(token.drawn)]) ++token.drawn;
    // Untruncated importance sampling has no drift to remove: with a band that holds everything the centering terms
    // are exactly 0 under a tail (p - 1 p). Without a tail they are p, whose sum over the support has no gradient.
    OwnedBatch batch;
    batch.append(token);
    const auto everything = make_correction("sc+mis", {{"mis.low", 0.0}, {"mis.high", 1e9}});
    const std::vector<double> b = batch.dense(batch.coefficients(*everything), 0, kVocabulary);
    const auto drawn = static_cast<size_t>(token.drawn);
    const double r = token.p[drawn] / token.q[drawn];
    std::vector<double> plain(kVocabulary, 0.0);
    plain[drawn] = -token.advantage * r;
    CHECK(largest_difference(logit_gradient(b, token.p), logit_gradient(plain, token.p)) < 1e-13 * std::max(1.0, r));
    if (token.tail) {
      for (size_t v = 0; v < kVocabulary; ++v) CHECK((v == drawn || b[v] == 0.0));
    }
    token.p = token.q;
    OwnedBatch equal;
    equal.append(token);
    for (const std::string name : {"sc", "sc+mis"}) {
      const auto g = logit_gradient(equal.dense(equal.coefficients(*make_correction(name)), 0, kVocabulary), token.p);
      plain[drawn] = -token.advantage;
      CHECK(largest_difference(g, logit_gradient(plain, token.p)) < 1e-14);
    }
  }
}

TEST_CASE("an advantage of 0 gives exactly 0, whatever the log-probabilities are") {
  const auto name = GENERATE(from_range(kNames));
  const auto correction = make_correction(name);
  for (const double log_p : {-1.0, 0.0, -reference::kInfinity, std::nan("")}) {
    for (const double log_q : {-1.0, -200.0, -reference::kInfinity, std::nan("")}) {
      for (const double tail : {-reference::kInfinity, -3.0, std::nan("")}) {
        OwnedBatch batch = single(log_p, log_q, 0.0);
        batch.log_p_tail[0] = batch.log_q_tail[0] = tail;
        const double b = batch.coefficients(*correction).b[0];
        CHECK(b == 0.0);
      }
    }
  }
}

}  // namespace
}  // namespace motley::algos
