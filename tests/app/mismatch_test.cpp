// motley mismatch: what it reports of a small run, and what it refuses.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

using nlohmann::json;

/// A run folder runs/small-0 with a checkpoint of update 2.
struct SmallRun {
  SmallRun() {
    folder.write("x.toml", kSmallRun);
    const Ended ended = run_binary(
        folder, run_arguments("x.toml", {"warmstart.steps=0", "run.checkpoint_every=2"}, {"--stop-after", "2"}));
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
  }
  Ended mismatch(std::vector<std::string> further, const std::string& model = "runs/small-0") const {
    further.insert(further.begin(), {"mismatch", model});
    return run_binary(folder, further);
  }
  json result(std::vector<std::string> further) const {
    further.insert(further.end(), {"--json", "--responses", "24"});
    const Ended ended = mismatch(further);
    CAPTURE(ended.err);
    REQUIRE(ended.code == 0);
    CHECK(ended.err.empty());
    return json::parse(ended.out);
  }
  TemporaryFolder folder;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("mismatch: one profile against itself is exactly zero everywhere") {
  const SmallRun run;
  for (const char* profile : {"bf16", "b200-nvfp4"}) {
    const json whole = run.result({"--sampler", profile, "--trainer", profile, "--attribution", "layers"});
    const json& result = whole.at("results").at(0);
    CAPTURE(result.dump());
    CHECK(result.at("tokens") > 0);
    CHECK(result.at("records_that_differ") == 0);
    for (const char* name : {"kl_sampler_trainer", "kl_trainer_sampler", "k1", "k3", "total_variation", "sequence_kl",
                             "sequence_k1", "gap_per_1000_tokens", "p_minus_q"}) {
      for (const auto& [part, value] : result.at(name).items()) CHECK(value == 0.0);
    }
    CHECK(result.at("same_top1") == 1.0);
    CHECK(result.at("ratio_max") == 1.0);
    for (const char* name : {"by_operation", "by_layer"}) {
      CHECK(result.at(name).at("kl") == 0.0);
      CHECK(result.at(name).at("interaction") == 0.0);
      for (const json& unit : result.at(name).at("units")) CHECK(unit.at("same_in_both") == true);
    }
  }
}

TEST_CASE("mismatch: the parts add up to the whole, in JSON and in the table") {
  const SmallRun run;
  const json result =
      run.result({"--sampler", "h100-fp8", "--trainer", "fp32", "--attribution", "layers"}).at("results").at(0);
  CHECK(result.at("records_that_differ") == 0);
  const double kl = result.at("kl_sampler_trainer").at("value");
  REQUIRE(kl > 0.0);
  for (const char* name : {"by_operation", "by_layer"}) {
    double alone = 0.0, added = 0.0;
    for (const json& unit : result.at(name).at("units")) {
      alone += unit.at("kl_alone").get<double>();
      added += unit.at("kl_added").get<double>();
    }
    CHECK(result.at(name).at("kl") == kl);
    CHECK(added == Approx(kl));
    CHECK(alone + result.at(name).at("interaction").get<double>() == Approx(kl));
  }
  int64_t tokens = 0;
  for (const json& bin : result.at("by_position")) tokens += bin.at("tokens").get<int64_t>();
  CHECK(tokens == result.at("tokens"));

  const Ended table = run.mismatch({"--sampler", "h100-fp8", "--trainer", "fp32", "--responses", "24"});
  CHECK(table.code == 0);
  for (const char* part : {"h100-fp8 against fp32", "interaction", "whole", "kv cache", "KL(p||q)", "per 1,000 tokens"})
    CHECK(has(table.out, part));
  const size_t softmax = table.out.find("softmax");
  REQUIRE(softmax != std::string::npos);
  CHECK(has(table.out.substr(softmax, 60), "same in both"));
}

TEST_CASE("mismatch: several samplers in one table, the seed decides every byte") {
  const SmallRun run;
  const std::vector<std::string> both{"--sampler", "bf16,fp16", "--trainer", "fp32", "--attribution", "off"};
  const json result = run.result(both);
  REQUIRE(result.at("results").size() == 2);
  const auto kl = [&](size_t i) { return result.at("results")[i].at("kl_sampler_trainer").at("value").get<double>(); };
  CHECK(kl(0) > 20 * kl(1));
  CHECK_FALSE(result.at("results")[0].contains("by_operation"));
  CHECK(run.result(both) == result);
  std::vector<std::string> other = both;
  other.insert(other.end(), {"--seed", "1"});
  CHECK(run.result(other) != result);
  CHECK(has(run.mismatch(both).out, "first/this"));
  const Ended side_by_side = run.mismatch({"--sampler", "bf16,h100-fp8", "--trainer", "bf16", "--responses", "8"});
  const size_t kv = side_by_side.out.find("kv cache");
  REQUIRE(kv != std::string::npos);
  // bf16 against itself differs nowhere, h100-fp8 in the format of its cache.
  CHECK(std::regex_search(side_by_side.out.substr(kv, 70), std::regex("^kv cache +same +- +[0-9.]+ % +-?[0-9.]+ %\n")));
}

TEST_CASE("mismatch: prompts of a file, the full length on request, another order of summation") {
  const SmallRun run;
  run.folder.write("prompts.jsonl",
                   "{\"prompt\": \"1+2=\"}\n\n{\"tokens\": [1, 2, 3]}\n{\"prompt\": \"3\", \"answer\": \"x\"}\n");
  const json result = run.result({"--sampler", "fp32", "--trainer", "fp32", "--prompts", "prompts.jsonl", "--run-on",
                                  "--length", "7", "--sampler-tile", "4"});
  CHECK(result.at("prompts").at("count") == 3);
  CHECK(result.at("run_on") == true);
  const json& only = result.at("results").at(0);
  CHECK(only.at("tokens") == 24 * 7);
  CHECK(only.at("sampler") == "fp32, tile 4");
  for (const json& unit : only.at("by_operation").at("units"))
    CHECK(unit.at("same_in_both") == (unit.at("name") != "reduction order"));
}

TEST_CASE("mismatch: the page stands alone") {
  const SmallRun run;
  const Ended ended = run.mismatch({"--sampler", "fp8,nvfp4", "--trainer", "bf16", "--plot", "page.html", "--responses",
                                    "24", "--attribution", "layers"});
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const std::string page = run.folder.read("page.html");
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(has(page, "nvfp4 against bf16"));
  CHECK(has(page, "KL(q||p) of layers switched alone"));
  for (const char* outside : {"http", "src=", "url(", "<link", "<script"}) CHECK_FALSE(has(page, outside));
  size_t open = 0, close = 0;
  for (size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++open;
  for (size_t at = 0; (at = page.find("</svg>", at)) != std::string::npos; ++at) ++close;
  CHECK(open == 2 + 2 * 5);
  CHECK(open == close);
  CHECK(has(page, "aria-label='KL(q||p) by the trainer&#39;s largest probability'"));
  CHECK_FALSE(has(page, "nan"));
}

TEST_CASE("mismatch: wrong input is refused with its place") {
  const SmallRun run;
  const std::vector<std::string> good{"--sampler", "bf16", "--trainer", "fp32"};
  const auto refused = [&](std::vector<std::string> further, const std::string& part) {
    further.insert(further.begin(), good.begin(), good.end());
    require_refused(run.mismatch(further), part);
  };
  require_refused(run.mismatch({"--sampler", "bf61", "--trainer", "fp32"}),
                  "--sampler bf61: error: there is no such profile");
  require_refused(run.mismatch({"--sampler", "bf16", "--trainer", "fp3"}), "--trainer fp3");
  require_refused(run.mismatch({"--trainer", "fp32"}), "--sampler");
  require_refused(run.mismatch({"--sampler", "fp16"}), "--trainer");
  require_refused(run.mismatch(good, "nowhere"), "nowhere");
  refused({"--env", "arithmetik"}, "did you mean 'arithmetic'");
  refused({"--env", "arithmetic", "--prompts", "x"}, "both --prompts and --env");
  refused({"--prompts", "absent.jsonl"}, "absent.jsonl: error: cannot be read");
  refused({"--plot", "absent/x.html"}, "--plot absent/x.html: error: there is no folder 'absent'");
  REQUIRE(mkfifo((run.folder / "pipe.html").c_str(), 0600) == 0);
  refused({"--plot", "pipe.html"}, "is there already, and no regular file");
  refused({"--attribution", "all"}, "--attribution");
  refused({"--temperature", "0"}, "--temperature");
  refused({"--temperature", "nan"}, "--temperature: Value nan not in range 0.001 to 100");
  refused({"--length", "0"}, "--length");
  refused({"--responses", "-1"}, "--responses");
  refused({"--sampler-tile", "-2"}, "--sampler-tile");
  require_refused(run.mismatch({"--sampler", "h100-fp8-accumulate14", "--trainer", "fp32", "--sampler-tile", "5"}),
                  "whole steps of 32");
  const auto line = [&](const std::string& text, const std::string& part) {
    run.folder.write("p.jsonl", "{\"tokens\": [1]}\n" + text + "\n");
    refused({"--prompts", "p.jsonl"}, "p.jsonl:2: error: " + part);
  };
  line("{\"tokens\": [1, 99999]}", "token 99999 is outside the vocabulary");
  line("{\"tokens\": []}", "no tokens");
  line("{\"prompt\": 3}", "\"prompt\" is no text");
  line("{\"prompt\": \"?!\"}", "");
  line("[1, 2", "no JSON");
  line(
      "{\"tokens\": [" + std::string("1") +
          [] {
            std::string more;
            for (int i = 0; i < 31; ++i) more += ",1";
            return more;
          }() +
          "]}",
      "32 tokens, but the model has 32 positions, of which a response needs one");
  std::filesystem::copy(run.folder / "runs/small-0/checkpoints/step-2", run.folder / "alone");
  require_refused(run.mismatch(good, "alone"), "give --prompts FILE or --env NAME");
  std::filesystem::resize_file(run.folder / "alone/model.safetensors", 100);
  require_refused(run.mismatch(good, "alone"), "model.safetensors");
}

}  // namespace motley::app
