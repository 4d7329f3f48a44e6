// Recipes, parameters of single sampler groups, and corrections that are refused when the file is read.
#include "app/recipes.h"

#include <catch2/catch.hpp>

#include "app/experiment_toml.h"
#include "app/schema.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

using Catch::Matchers::Contains;

const std::string kTask = "[[tasks]]\nenv = \"arithmetic\"\n";

Experiment load_recipe(const std::string& toml, const std::vector<std::string>& sets = {}) {
  const TemporaryFolder folder;
  folder.write("x.toml", toml);
  return load_experiment({folder.path() / "x.toml", sets, ""});
}

TEST_CASE("a recipe gives its keys, is printed, and resolves to itself") {
  CHECK(recipes().size() == 9);
  for (const Recipe& recipe : recipes()) {
    CAPTURE(recipe.name);
    CHECK(!recipe.source.empty());
    const Experiment e = load_recipe("algo.recipe = \"" + recipe.name + "\"\n" + kTask);
    const std::string text = experiment_to_toml(e);
    CHECK(experiment_to_toml(load_recipe(text)) == text);
    const auto values = experiment_values(e);
    for (const auto& [key, value] : recipe.keys) {
      CAPTURE(key);
      REQUIRE(values.contains(key));
      const Node given = parse_toml_value(values.at(key), {}), wanted = parse_toml_value(value, {});
      CHECK((given.text == wanted.text && given.number == wanted.number && given.integer == wanted.integer));
    }
    // A clip on p / pi_old would do nothing with one step a batch.
    if (algos::make_correction(e.algo.correction, e.correction_parameters())->clips_against_old()) {
      CHECK(e.algo.minibatches > 1);
    }
  }
}

TEST_CASE("keys that are given win over the recipe's") {
  const std::string dapo = "algo.recipe = \"dapo\"\n" + kTask;
  CHECK(algos::number(load_recipe(dapo).algo.parameters, "ppo-clip.high") == 0.28);
  CHECK(load_recipe(dapo).algo.drop_equal_groups);
  CHECK(load_recipe(dapo).algo.overlong == "penalty");
  CHECK(load_recipe(dapo, {"algo.minibatches=3"}).algo.minibatches == 3);
  const Experiment wider = load_recipe(dapo + "[algo.parameters]\nppo-clip.high = 0.5\n");
  CHECK(algos::number(wider.algo.parameters, "ppo-clip.high") == 0.5);
  CHECK(algos::number(wider.algo.parameters, "ppo-clip.low") == 0.2);
  // With another correction its parameters are not meant, the rest is.
  const Experiment other = load_recipe(dapo, {"algo.correction=mis"});
  CHECK(other.algo.parameters == algos::default_parameters("mis"));
  CHECK(other.algo.minibatches == 16);
  CHECK(load_recipe(kTask, {"algo.recipe=icepop"}).algo.correction == "mis");
  CHECK(load_recipe("algo.recipe = \"pg-seq-is-fp16\"\n" + kTask).trainer.profile == "fp16");
  CHECK_THROWS_WITH(load_recipe("algo.recipe = \"dappo\"\n" + kTask), Contains("x.toml:1:15") && Contains("'dapo'?"));
  CHECK_THROWS_WITH(load_recipe("algo.recipe = 3\n" + kTask), Contains("x.toml:1:15") && Contains("the integer 3"));
  // What a recipe sets is refused at the recipe's place.
  CHECK_THROWS_WITH(load_recipe(dapo, {"algo.prompts=8"}), Contains("x.toml:1:15") && Contains("16 minibatches of 8"));
}

TEST_CASE("a sampler group has a band of its own") {
  const std::string toml = "algo.correction = \"sc+mis\"\n" + kTask +
                           "[[samplers]]\nname = \"a\"\n[[samplers]]\nname = \"b\"\nparameters.mis.high = 3.0\n";
  const Experiment e = load_recipe(toml, {"samplers.a.parameters.mis.low=0.25"});
  CHECK(algos::number(e.correction_parameters(), "mis.high@b") == 3.0);
  CHECK(algos::number(e.correction_parameters(), "mis.low@a") == 0.25);
  CHECK(algos::number(e.correction_parameters(), "mis.high") == 5.0);
  const std::string text = experiment_to_toml(e);
  CHECK(experiment_to_toml(load_recipe(text)) == text);
  CHECK(load_recipe(toml, {"algo.correction=grpo"}).samplers[1].parameters.empty());
  const auto group = [](const std::string& line) {
    return "algo.correction = \"mis\"\n" + kTask + "[[samplers]]\nname = \"a\"\nparameters." + line + "\n";
  };
  CHECK_THROWS_WITH(load_recipe(group("mis.hgih = 3.0")), Contains("x.toml:6:16") && Contains("'mis.high'?"));
  CHECK_THROWS_WITH(load_recipe(group("mis.high = -3.0")), Contains("x.toml:6:23") && Contains("at least 0"));
  CHECK_THROWS_WITH(load_recipe(group("mis.high = 0.1")), Contains("parameters of mis"));
  CHECK_THROWS_WITH(load_recipe(group("mis = 0.1")), Contains("x.toml:6:12") && Contains("unknown parameter 'mis'"));
}

TEST_CASE("corrections that cannot work are refused with the reason and the place") {
  const auto refused = [](const std::string& correction, const std::string& rest, const std::string& reason) {
    CAPTURE(correction, rest);
    CHECK_THROWS_WITH(load_recipe("algo.correction = \"" + correction + "\"\n" + rest + kTask),
                      Contains("x.toml:1:19: error: ") && Contains(reason));
  };
  refused("tis+mis", "", "two ratio rules, tis and mis");
  refused("sc+seq-is", "", "function of p / q");
  refused("sc+", "", "unknown piece");
  for (const char* clip : {"ppo-clip", "gspo", "cispo", "minirl", "decoupled", "ppo-clip+veto"}) {
    refused(clip, "", "can never bind");
    CHECK_NOTHROW(load_recipe("algo.correction = \"" + std::string(clip) + "\"\nalgo.epochs = 2\n" + kTask));
    CHECK_NOTHROW(load_recipe("algo.correction = \"" + std::string(clip) + "\"\nalgo.minibatches = 2\n" + kTask));
  }
  CHECK_NOTHROW(load_recipe("algo.correction = \"gspo\"\nalgo.parameters.gspo.anchor = \"sampler\"\n" + kTask));
  CHECK_NOTHROW(load_recipe("algo.correction = \"gspo\"\n" + kTask, {"algo.parameters.gspo.anchor=sampler"}));
  CHECK_THROWS_WITH(load_recipe("algo.correction = \"sc\"\nalgo.parameters.sc.tail = \"of\"\n" + kTask),
                    Contains("x.toml:2:27") && Contains("'off'?"));
  CHECK_THROWS_WITH(load_recipe("algo.correction = \"tis\"\nalgo.parameters.tis.cap = 0\n" + kTask),
                    Contains("x.toml:2:27") && Contains("above 0"));
  CHECK_THROWS_WITH(load_recipe("algo.correction = \"m2po\"\n" + kTask +
                                "[[samplers]]\nname = \"a\"\nparameters.m2po.threshold = 1.0\n"),
                    Contains("all sampler groups together"));
}

TEST_CASE("the lists of corrections and recipes name all that there is") {
  const TemporaryFolder folder;
  const Ended table = run_binary(folder, {"list", "corrections"});
  CHECK(table.code == 0);
  const Ended json = run_binary(folder, {"list", "corrections", "--json"});
  for (const algos::CorrectionInfo& info : algos::corrections()) {
    CHECK_THAT(table.out, Contains("\n" + info.name + " ") && Contains(info.formula) && Contains(info.source));
    CHECK_THAT(json.out, Contains("\"name\":\"" + info.name + "\""));
  }
  CHECK_THAT(json.out, Contains("\"extra_pass\":true") && Contains("\"records\":\"top-K\""));
  const Ended names = run_binary(folder, {"list", "recipes"});
  for (const Recipe& recipe : recipes()) CHECK_THAT(names.out, Contains(recipe.name + " ") && Contains(recipe.source));
}

}  // namespace
}  // namespace motley::app
