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

/// Registered by example_correction.cpp, the example of docs/adding-a-correction.md.
const std::string kExample = "power-is";

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
  const auto wide = make_correction("tis", {{"tis.cap", 1e300}});
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

TEST_CASE("score centering bounds the tail ratio that it uses") {
  const auto sc = make_correction("sc");
  OwnedBatch batch = single(std::log(0.5), std::log(0.5), 1.0);
  batch.log_p_tail = {-90.0};
  batch.log_q_tail = {std::log(1e-3)};
  CHECK(batch.coefficients(*sc).b[0] == Approx(-1.0 + 0.5 - 1000.0 * 0.5));  // rho = 1e-3 / 1e-6

  batch.log_p_tail = batch.log_q_tail = {-60.0};  // equal and far below the floor: rho is 1
  CHECK(batch.coefficients(*sc).b[0] == -1.0);
}

TEST_CASE("the registry holds exactly the files of algos/corrections") {
  std::set<std::string> files, names;
  for (const auto& entry : std::filesystem::directory_iterator(MOTLEY_SOURCE_DIR "/algos/corrections")) {
    if (entry.path().extension() != ".cpp") continue;
    std::string name = entry.path().stem().string();
    std::replace(name.begin(), name.end(), '_', '-');
    files.insert(name);
  }
  for (const CorrectionInfo& info : corrections()) {
    if (info.name == kExample) continue;
    names.insert(info.name);
    CAPTURE(info.name);
    CHECK(!info.summary.empty());
    CHECK(!info.formula.empty());
    CHECK(!info.source.empty());
    CHECK(int(bool(info.ratio_rule)) + int(bool(info.filter)) + int(bool(info.centering)) == 1);
    CHECK(make_correction(info.name) != nullptr);
    for (const ParameterInfo& parameter : info.parameters) CHECK(!parameter.meaning.empty());
  }
  CHECK(names == files);
  CHECK(std::is_sorted(corrections().begin(), corrections().end(),
                       [](const auto& a, const auto& b) { return a.name < b.name; }));
  CHECK_THROWS_AS(register_correction(corrections().front()), std::invalid_argument);
}

TEST_CASE("of the parameters of one sum, another one has those of the pieces that they share") {
  const CorrectionParameters given{{"mis.low", 0.3}, {"mis.high@a", 3.0}, {"sc.tail", "off"}};
  CHECK(parameters_of("sc+mis", given) == given);
  CHECK(parameters_of("mis+veto", given) == CorrectionParameters{{"mis.low", 0.3}, {"mis.high@a", 3.0}});
  CHECK(parameters_of("sc", given) == CorrectionParameters{{"sc.tail", "off"}});
  CHECK(parameters_of("grpo", given).empty());
  CHECK_THROWS_AS(parameters_of("miss", given), std::invalid_argument);
}

TEST_CASE("what each correction asks for") {
  struct Needs {
    std::string name;
    Scope scope;
    bool old, clips, sampler;
    RecordKind record;
  };
  const auto sampled = RecordKind::sampled, top_k = RecordKind::top_k;
  for (const Needs& n : std::vector<Needs>{{"grpo", Scope::token, false, false, false, sampled},
                                           {"token-is", Scope::token, false, false, true, sampled},
                                           {"tis", Scope::token, false, false, true, sampled},
                                           {"mis", Scope::token, false, false, true, sampled},
                                           {"seq-is", Scope::sequence, false, false, true, sampled},
                                           {"seq-tis", Scope::sequence, false, false, true, sampled},
                                           {"seq-mis", Scope::sequence, false, false, true, sampled},
                                           {"pg-seq-is", Scope::sequence, false, false, true, sampled},
                                           {"cumulative", Scope::sequence, false, false, true, sampled},
                                           {"gspo", Scope::sequence, true, true, false, sampled},
                                           {"cispo", Scope::token, true, true, false, sampled},
                                           {"ppo-clip", Scope::token, true, true, false, sampled},
                                           {"dppo-tv", Scope::token, false, false, true, sampled},
                                           {"dppo-kl", Scope::token, false, false, true, sampled},
                                           {"minirl", Scope::token, true, true, true, sampled},
                                           {"m2po", Scope::batch, false, false, true, sampled},
                                           {"ais", Scope::batch, false, false, true, sampled},
                                           {"decoupled", Scope::token, true, true, true, sampled},
                                           {"geo-mask", Scope::sequence, false, false, true, sampled},
                                           {"veto", Scope::sequence, false, false, true, sampled},
                                           {"opsm", Scope::sequence, false, false, true, sampled},
                                           {"sc", Scope::token, false, false, true, top_k},
                                           {"sc+mis", Scope::token, false, false, true, top_k},
                                           {"tis+geo-mask+sc", Scope::sequence, false, false, true, top_k},
                                           {"m2po+veto", Scope::batch, false, false, true, sampled},
                                           {"gspo+opsm", Scope::sequence, true, true, true, sampled}}) {
    const auto correction = make_correction(n.name);
    CAPTURE(n.name);
    CHECK(correction->scope() == n.scope);
    CHECK(correction->needs_old_log_probs() == n.old);
    CHECK(correction->clips_against_old() == n.clips);
    CHECK(correction->uses_sampler() == n.sampler);
    CHECK(correction->needs() == n.record);
  }
  const auto anchored = make_correction("ppo-clip", {{"ppo-clip.anchor", "sampler"}});
  CHECK(!anchored->needs_old_log_probs());
  CHECK(!anchored->clips_against_old());
  const auto interpolated = make_correction("decoupled", {{"decoupled.proximal", "loglinear"}});
  CHECK(!interpolated->needs_old_log_probs());
  CHECK(interpolated->clips_against_old());
}

TEST_CASE("sums that make no sense are refused with the reason") {
  CHECK_THROWS_WITH(make_correction("sc+mi"), Contains("\"sc+mi\": \"mi\"") && Contains("nearest: \"mis\""));
  CHECK_THROWS_WITH(make_correction("mos"), Contains("unknown correction \"mos\"") && Contains("nearest: \"mis\""));
  CHECK_THROWS_WITH(make_correction("tis+mis"), Contains("two ratio rules, tis and mis"));
  CHECK_THROWS_WITH(make_correction("veto+mis+veto"), Contains("names veto twice"));
  for (const char* sum : {"sc+seq-is", "gspo+sc", "sc+ppo-clip", "sc+cispo", "sc+minirl", "sc+m2po", "sc+ais",
                          "sc+decoupled", "sc+seq-tis", "sc+seq-mis", "sc+pg-seq-is", "sc+cumulative"}) {
    CHECK_THROWS_WITH(make_correction(sum), Contains("allowed with it: dppo-kl, dppo-tv, grpo, mis, "));
  }
  for (const char* broken : {"", "+", "sc+", "+sc", "sc++mis", "sc + mis"}) {
    CHECK_THROWS_AS(make_correction(broken), std::invalid_argument);
  }
}

TEST_CASE("parameters that are unknown or impossible are refused") {
  CHECK_THROWS_WITH(make_correction("mis", {{"mis.hihg", 3.0}}),
                    Contains("mis.hihg") && Contains("nearest: \"mis.high\""));
  CHECK_THROWS_WITH(make_correction("mis", {{"high", 3.0}}), Contains("allowed: mis.high, mis.low"));
  CHECK_THROWS_WITH(make_correction("grpo", {{"mis.low", 0.5}}), Contains("allowed: none"));
  CHECK_THROWS_WITH(make_correction("mis", {{"mis.low", 5.0}}), Contains("parameters of mis") && Contains("below"));
  CHECK_THROWS_WITH(make_correction("mis", {{"mis.low", -1.0}}), Contains("at least 0"));
  CHECK_THROWS_WITH(make_correction("mis", {{"mis.high", std::nan("")}}), Contains("not a number"));
  CHECK_THROWS_WITH(make_correction("mis", {{"mis.high", "much"}}), Contains("mis.high is to be a number"));
  CHECK_THROWS_WITH(make_correction("tis", {{"tis.cap", 0.0}}), Contains("above 0"));
  CHECK_THROWS_WITH(make_correction("tis", {{"tis.low", 2.0}}), Contains("below tis.cap"));
  CHECK_THROWS_WITH(make_correction("sc", {{"sc.tail", "of"}}), Contains("nearest: \"off\""));
  CHECK_THROWS_WITH(make_correction("gspo", {{"gspo.low", 1.5}}), Contains("at most 1"));
  CHECK_THROWS_WITH(make_correction("m2po", {{"m2po.threshold@a", 1.0}}), Contains("all sampler groups together"));
  CHECK_THROWS_WITH(make_correction("sc", {{"sc.tail@a", "off"}}), Contains("only numbers"));
  CHECK_NOTHROW(make_correction("mis", {{"mis.low", 0.0}, {"mis.high", kInfinity}}));
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
