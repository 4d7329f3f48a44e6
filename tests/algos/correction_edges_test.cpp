// Edges of bands, extreme ratios, zero probabilities, parameters, and the registry.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "algos/nearest_name.h"
#include "tests/algos/token_cases.h"

namespace motley::algos {
namespace {

using Catch::Matchers::Contains;
using reference::kInfinity;

double drawn_b(const std::string& name, double log_p, double log_q, double advantage = 1.0) {
  return single(log_p, log_q, advantage).coefficients(*make_correction(name)).b[0];
}

TEST_CASE("mis keeps the edges of its band and drops the next number outside") {
  const auto mis = make_correction("mis");
  struct Case {
    double log_p, log_q;
    bool kept;
  };
  const double low = std::log(0.5), high = std::log(5.0);
  // One of the two is 0 so that the difference is exact.
  for (const Case& c : {Case{low, 0.0, true}, Case{std::nextafter(low, -1.0), 0.0, false},
                        Case{std::nextafter(low, 0.0), 0.0, true}, Case{0.0, -high, true},
                        Case{0.0, std::nextafter(-high, -2.0), false}, Case{0.0, std::nextafter(-high, 0.0), true}}) {
    CAPTURE(c.log_p, c.log_q);
    const Coefficients out = single(c.log_p, c.log_q, -2.0).coefficients(*mis);
    CHECK(out.masked[0] == !c.kept);
    CHECK(out.b[0] == (c.kept ? Approx(2.0 * std::exp(c.log_p - c.log_q)).epsilon(1e-15) : Approx(0.0)));
  }
}

TEST_CASE("sc+mis masks the drawn token, recorded ids and the modelled tail each by its own ratio") {
  const auto correction = make_correction("sc+mis");
  const auto run = [&](double rho, double r_other) {
    OwnedBatch batch = single(std::log(0.4), std::log(0.4), 1.0);
    batch.offsets = {0, 2};
    batch.ids = {0, 1};
    batch.in_record = {1, 1};
    batch.log_p.push_back(std::log(0.2));
    batch.log_q.push_back(std::log(0.2 / r_other));
    batch.log_p_tail = {std::log(0.25)};
    batch.log_q_tail = {std::log(0.25 * rho)};
    return batch.coefficients(*correction).b[1];
  };
  CHECK(run(1.0, 1.0) == 0.0);           // p - p
  CHECK(run(1.0, 6.0) == Approx(-0.2));  // the id is masked: - alpha p
  CHECK(run(1.0, 0.4) == Approx(-0.2));
  CHECK(run(2.0, 1.0) == 0.0);          // 1 / rho = 0.5 is in the band
  CHECK(run(2.1, 1.0) == Approx(0.2));  // alpha = 0: p alone
  CHECK(run(0.2 * 1.001, 1.0) == 0.0);  // 1 / rho just below 5
  CHECK(run(0.2 * 0.999, 1.0) == Approx(0.2));
}

TEST_CASE("log-ratios of +-100 are bounded in the weights") {
  CHECK(drawn_b("grpo", -1.0, -101.0) == -1.0);
  CHECK(drawn_b("tis", -1.0, -101.0) == -2.0);
  CHECK(drawn_b("tis", -101.0, -1.0) == -std::exp(-kLogRatioBound));
  CHECK(drawn_b("mis", -1.0, -101.0) == 0.0);
  CHECK(drawn_b("mis", -101.0, -1.0) == 0.0);
  CHECK(drawn_b("sc+mis", -1.0, -101.0) == Approx(0.0));
  const auto wide = make_correction("tis", {{"cap", 1e300}});
  CHECK(single(-1.0, -101.0, 1.0).coefficients(*wide).b[0] == -std::exp(kLogRatioBound));
}

TEST_CASE("zero probabilities never give NaN or infinity") {
  const auto name = GENERATE(as<std::string>{}, "grpo", "mis", "sc", "sc+mis", "tis");
  CAPTURE(name);
  const auto correction = make_correction(name);
  const std::vector<double> logs{-kInfinity, -300.0, -1.0, 0.0};
  for (const double log_p : logs) {
    for (const double log_q : logs) {
      for (const double p_tail : logs) {
        for (const double q_tail : logs) {
          OwnedBatch batch = single(-0.5, -0.5, 1.0);
          batch.offsets = {0, 2};
          batch.ids = {0, 1};
          batch.in_record = {1, 1};
          batch.log_p.push_back(log_p);
          batch.log_q.push_back(log_q);
          batch.log_p_tail = {p_tail};
          batch.log_q_tail = {q_tail};
          for (const double b : batch.coefficients(*correction).b) {
            CAPTURE(log_p, log_q, p_tail, q_tail, b);
            // The tail ratio is at most 1 / kTailFloor = 1e6.
            REQUIRE(std::abs(b) <= 1.1e6);
          }
        }
      }
    }
  }
}

TEST_CASE("score centering reports the true tail ratio and bounds the one that it uses") {
  const auto sc = make_correction("sc");
  OwnedBatch batch = single(std::log(0.5), std::log(0.5), 1.0);
  batch.log_p_tail = {-90.0};
  batch.log_q_tail = {std::log(1e-3)};
  const Coefficients out = batch.coefficients(*sc);
  CHECK(out.samples.at("sc/tail_ratio").at(0) == Approx(1e-3 * std::exp(90.0)));
  CHECK(out.b[0] == Approx(-1.0 + 0.5 - 1000.0 * 0.5));  // rho = 1e-3 / 1e-6

  batch.log_p_tail = batch.log_q_tail = {-60.0};  // equal and far below the floor: rho is 1
  CHECK(batch.coefficients(*sc).b[0] == -1.0);
  batch.log_p_tail = batch.log_q_tail = {-kInfinity};
  CHECK(batch.coefficients(*sc).samples.empty());
}

TEST_CASE("the registry holds exactly the files of algos/corrections") {
  std::set<std::string> files, names;
  for (const auto& entry : std::filesystem::directory_iterator(MOTLEY_SOURCE_DIR "/algos/corrections")) {
    if (entry.path().extension() != ".cpp") continue;
    std::string name = entry.path().stem().string();
    std::replace(name.begin(), name.end(), '_', '+');
    files.insert(name);
  }
  for (const CorrectionInfo& info : corrections()) {
    names.insert(info.name);
    CHECK(!info.summary.empty());
    CHECK(!info.formula.empty());
    CHECK(!info.source.empty());
    CHECK(make_correction(info.name) != nullptr);
  }
  CHECK(names == files);
  CHECK(std::is_sorted(corrections().begin(), corrections().end(),
                       [](const auto& a, const auto& b) { return a.name < b.name; }));
  CHECK(names.size() == corrections().size());
}

TEST_CASE("what each correction asks for") {
  for (const CorrectionInfo& info : corrections()) {
    const auto correction = make_correction(info.name);
    CAPTURE(info.name);
    CHECK(correction->uses_sampler() == (info.name != "grpo"));
    CHECK(correction->needs() == (info.name.starts_with("sc") ? RecordKind::top_k : RecordKind::sampled));
    CHECK(correction->scope() == Scope::token);
    CHECK(!correction->needs_old_log_probs());
  }
}

TEST_CASE("names that are unknown, taken or given impossible values are refused") {
  CHECK_THROWS_WITH(make_correction("sc+mi"), Contains("allowed: grpo, mis, sc, sc+mis, tis") &&
                                                  Contains("nearest: \"sc+mis\"") && Contains("\"sc+mi\""));
  CHECK_THROWS_WITH(make_correction("mis", {{"hihg", 3.0}}), Contains("hihg") && Contains("nearest: \"high\""));
  CHECK_THROWS_WITH(make_correction("grpo", {{"low", 0.5}}), Contains("allowed: none"));
  CHECK_THROWS_AS(make_correction("mis", {{"low", 5.0}}), std::invalid_argument);
  CHECK_THROWS_AS(make_correction("mis", {{"low", -1.0}}), std::invalid_argument);
  CHECK_THROWS_AS(make_correction("mis", {{"high", std::nan("")}}), std::invalid_argument);
  CHECK_THROWS_AS(make_correction("tis", {{"cap", 0.0}}), std::invalid_argument);
  CorrectionInfo taken = corrections().front();
  CHECK_THROWS_AS(register_correction(taken), std::invalid_argument);
  CHECK_NOTHROW(make_correction("mis", {{"low", 0.0}, {"high", kInfinity}}));
}

TEST_CASE("edit distance and the nearest name") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("flaw", "lawn") == 2);
  const std::vector<std::string> names{"top_k", "top_p", "temperature"};
  CHECK(nearest_name("temprature", names) == "temperature");
  CHECK(nearest_name("top_q", names) == "top_k");  // the first of two
  CHECK(nearest_name("x", std::vector<std::string>{}).empty());
}

}  // namespace
}  // namespace motley::algos
