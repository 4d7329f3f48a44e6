#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/experiment_toml.h"
#include "app/schema.h"
#include "tests/temporary_folder.h"

namespace motley::app {
namespace {

Experiment load(const std::string& text, const std::vector<std::string>& sets = {}, const std::string& seed = "") {
  const TemporaryFolder folder;
  return load_experiment({folder.write("x.toml", text), sets, seed});
}

/// The message of a refusal, with the file's path as x.toml.
std::string refusal(const std::string& text, const std::vector<std::string>& sets = {}, const std::string& seed = "") {
  const TemporaryFolder folder;
  const std::string file = folder.write("x.toml", text).string();
  try {
    load_experiment({file, sets, seed});
  } catch (const InputError& error) {
    std::string message = error.what();
    for (size_t at = message.find(file); at != std::string::npos; at = message.find(file)) {
      message.replace(at, file.size(), "x.toml");
    }
    return message;
  }
  return "accepted";
}

const std::string kTask = "[[tasks]]\nenv = \"arithmetic\"\n";                 // two lines
const std::string kBase = "algo.correction = \"grpo\"\n" + kTask;              // three lines
std::string in_section(const std::string& section, const std::string& line) {  // the line is number 5
  const bool algo = section == "algo";
  return (algo ? "\n" + kTask : kBase) + "[" + section + "]\n" + (algo ? "correction = \"grpo\"\n" : "") + line + "\n";
}

struct Broken {
  std::string toml, where;
  std::vector<std::string> parts;
};

void require_refused(const Broken& broken, const std::vector<std::string>& sets = {}) {
  CAPTURE(broken.toml);
  const std::string message = refusal(broken.toml, sets);
  CAPTURE(message);
  CHECK(message.starts_with(broken.where + ": error: "));
  CHECK(message.find('\n') == std::string::npos);
  for (const std::string& part : broken.parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("the smallest experiment has defaults for all the rest") {
  const Experiment e = load(kBase);
  CHECK(e.algo.correction == "grpo");
  CHECK(e.samplers.size() == 1);
  CHECK(e.samplers[0].name == "default");
  CHECK(e.samplers[0].profile == "trainer");
  CHECK(e.samplers[0].max_sequences == 512);  // what run.concurrency needs
  CHECK(e.tasks[0].options.at("digits") == "2");
  CHECK(e.model.config.head_dim == 32);
  CHECK(e.model.config.ffn == 352);
}

TEST_CASE("a typo in every section names the place and the nearest key") {
  const std::vector<Broken> table{
      {"nmae = \"x\"\n" + kBase, "x.toml:1:1", {"unknown key 'nmae'", "did you mean 'name'?"}},
      {kBase + "[rnu]\n", "x.toml:4:2", {"unknown table 'rnu'", "did you mean 'run'?"}},
      {in_section("run", "updatse = 3"), "x.toml:5:1", {"unknown key 'updatse' in [run]", "did you mean 'updates'?"}},
      {in_section("model", "  layer = 3"), "x.toml:5:3", {"did you mean 'layers'?"}},
      {kBase + "digist = 1\n", "x.toml:4:1", {"in [[tasks]]", "did you mean 'digits'?"}},
      {in_section("warmstart", "setps = 3"), "x.toml:5:1", {"did you mean 'steps'?"}},
      {in_section("sampling", "top-p = 1.0"), "x.toml:5:1", {"did you mean 'top_p'?"}},
      {"\n" + kTask + "[algo]\ncorection = \"grpo\"\n", "x.toml:5:1", {"did you mean 'correction'?"}},
      {in_section("trainer", "leraning_rate = 1.0"),
       "x.toml:5:1",
       {"in [trainer]", "allowed: profile, device, kernels, lr"}},
      {kBase + "[[samplers]]\nname = \"a\"\nprofil = \"bf16\"\n", "x.toml:6:1", {"did you mean 'profile'?"}},
      {in_section("eval", "evry = 3"), "x.toml:5:1", {"did you mean 'every'?"}},
      {in_section("watch", "windwo = 3"), "x.toml:5:1", {"did you mean 'window'?"}},
      {in_section("probe", "drfit = [\"mis\"]"), "x.toml:5:1", {"did you mean 'drift'?"}},
      {"updates = 3\n" + kBase, "x.toml:1:1", {"did you mean 'run.updates'?"}},
  };
  for (const Broken& broken : table) require_refused(broken);
}

TEST_CASE("an unknown name is refused with the nearest one") {
  const std::vector<Broken> table{
      {"algo.correction = \"grop\"\n" + kTask, "x.toml:1:19", {"(nearest: \"grpo\")", "seq-mis"}},
      {"algo.correction = \"sc+miss\"\n" + kTask, "x.toml:1:19", {"(nearest: \"mis\")"}},
      {"algo.correction = \"grpo\"\n[[tasks]]\nenv = \"aritmetic\"\n", "x.toml:3:7", {"did you mean 'arithmetic'?"}},
      {in_section("trainer", "profile = \"bf17\""), "x.toml:5:11", {"\"fp32\", \"bf16\", \"fp16\"", "'bf16'?"}},
      {kBase + "[[samplers]]\nname = \"a\"\nprofile = \"b200-nvpf4\"\n",
       "x.toml:6:11",
       {"'b200-nvfp4'?", "\"trainer\""}},
      {in_section("eval", "profiles = [\"bf16\", \"h100fp8\"]"), "x.toml:5:21", {"'h100-fp8'?"}},
      {in_section("sampling", "record = \"topk\""), "x.toml:5:10", {"'top_k'?"}},
      {kBase + "[trainer]\nschedule = \"cosin\"\n", "x.toml:5:12", {"'cosine'?"}},
      {in_section("algo", "advantage = \"drgrpo\""), "x.toml:6:13", {"'dr_grpo'?"}},
      {in_section("algo", "reduction = \"tokenmean\""), "x.toml:6:13", {"'token_mean'?"}},
      {"algo.correction = \"mis\"\nalgo.parameters.mis.hihg = 2.0\n" + kTask,
       "x.toml:2:21",
       {"unknown parameter 'mis.hihg' of correction 'mis'", "'mis.high'?"}},
      {"algo.correction = \"sc+mis\"\nalgo.parameters.low = 2.0\n" + kTask, "x.toml:2:17", {"'mis.low'?"}},
      {"algo.correction = \"grpo\"\nalgo.parameters.mis.low = 2.0\n" + kTask, "x.toml:2:21", {"it has none"}},
  };
  for (const Broken& broken : table) require_refused(broken);
}

TEST_CASE("a wrong type or a value out of range is refused") {
  const std::vector<Broken> table{
      {in_section("run", "async = \"false\""), "x.toml:5:9", {"run.async is the text \"false\"", "without quotes"}},
      {in_section("run", "async = 0"), "x.toml:5:9", {"the integer 0"}},
      {in_section("run", "updates = 1.0"), "x.toml:5:11", {"the number 1.0", "an integer"}},
      {in_section("run", "updates = -3"), "x.toml:5:11", {"the integer -3", "at least 1"}},
      {in_section("run", "updates = \"3\""), "x.toml:5:11", {"the text \"3\""}},
      {in_section("run", "keep_trajectories = \"last\""), "x.toml:5:21", {"last N"}},
      {in_section("run", "keep_trajectories = \"last 0\""), "x.toml:5:21", {"last N"}},
      {in_section("run", "dir = \"\""), "x.toml:5:7", {"any text but the empty one"}},
      {in_section("run", "max_staleness = -1"), "x.toml:5:17", {"at least 0"}},
      {in_section("sampling", "temperature = nan"), "x.toml:5:15", {"the number nan"}},
      {in_section("sampling", "temperature = 0"), "x.toml:5:15", {"greedy", "evaluation"}},
      {in_section("sampling", "temperature = -1.0"), "x.toml:5:15", {"greedy"}},
      {in_section("sampling", "top_p = 0.0"), "x.toml:5:9", {"above 0 and at most 1"}},
      {in_section("sampling", "top_p = 1.5"), "x.toml:5:9", {"above 0 and at most 1"}},
      {in_section("trainer", "lr = inf"), "x.toml:5:6", {"the number inf"}},
      {in_section("trainer", "lr = 2024-01-01"), "x.toml:5:6", {"a date or time"}},
      {in_section("trainer", "beta1 = 1.0"), "x.toml:5:9", {"at least 0 and below 1"}},
      {in_section("algo", "group_size = 1"), "x.toml:6:14", {"compares a sample with the others of its group"}},
      {in_section("watch", "kl = \"halt\""), "x.toml:5:6", {"\"off\", \"warn\", \"checkpoint\", \"stop\""}},
      {in_section("watch", "kl_factor = 1"), "x.toml:5:13", {"above 1"}},
      {in_section("watch", "format_error_share = 1.0"), "x.toml:5:22", {"below 1"}},
      {in_section("watch", "window = 1"), "x.toml:5:10", {"at least 2"}},
      {in_section("eval", "k = []"), "x.toml:5:5", {"at least one integer"}},
      {in_section("eval", "k = [1, 1]"), "x.toml:5:9", {"twice"}},
      {in_section("eval", "k = 4"), "x.toml:5:5", {"a list"}},
      {in_section("eval", "k = [1, 0]"), "x.toml:5:9", {"eval.k[1] is the integer 0"}},
      {kBase + "digits = \"2\"\n", "x.toml:4:10", {"tasks.0.digits is the text"}},
      {kBase + "digits = 99\n", "x.toml:4:10", {"at most 9"}},
      {kBase + "weight = 0\n", "x.toml:4:10", {"above 0"}},
      {kBase + "[[samplers]]\nname = \"a/b\"\n", "x.toml:5:8", {"a letter, then"}},
      {kBase + "[[samplers]]\nname = \"a\"\nstaleness = [3, 1]\n", "x.toml:6:13", {"low <= high"}},
      {kBase + "[[samplers]]\nname = \"a\"\nstaleness = [3]\n", "x.toml:6:13", {"[low, high]"}},
      {"seed = -1\n" + kBase, "x.toml:1:8", {"at least 0"}},
      {"run = 3\n" + kBase, "x.toml:1:1", {"run is the integer 3", "a table"}},
      {"algo.correction = \"grpo\"\n[tasks]\nenv = \"arithmetic\"\n", "x.toml:2:2", {"[[tasks]]"}},
  };
  for (const Broken& broken : table) require_refused(broken);
}

TEST_CASE("syntax errors and keys that stand twice have a position") {
  require_refused({"x = [\n", "x.toml:1:7", {"end-of-file"}});
  require_refused({"seed = 1\n  seed = 2\n" + kBase, "x.toml:2:3", {"'seed'"}});
  CHECK(refusal("[run]\n[run]\n" + kTask).starts_with("x.toml:2:"));
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(load_experiment({folder.path() / "none.toml", {}, ""}),
                    Catch::Contains("none.toml: error: cannot be read"));
  CHECK_THROWS_WITH(load_experiment({folder.path(), {}, ""}), Catch::Contains("is a folder"));
}

TEST_CASE("what several keys make impossible is refused with its reason") {
  const std::string group = "[[samplers]]\nname = \"a\"\n";
  const std::vector<Broken> table{
      {kTask, "x.toml:1:1", {"asynchronous", "correction = \"grpo\""}},
      {kTask + "[algo]\nprompts = 4\n", "x.toml:3:2", {"plain GRPO must be asked for by name"}},
      {"algo.correction = \"grpo\"\n", "x.toml:1:1", {"no [[tasks]]"}},
      {"algo.correction = \"grpo\"\n[[tasks]]\nweight = 1\n", "x.toml:2:1", {"without env"}},
      {kBase + "[[samplers]]\nprofile = \"bf16\"\n", "x.toml:4:1", {"without a name"}},
      {kBase + group + group, "x.toml:7:8", {"two sampler groups are named 'a'", "x.toml:5:8"}},
      {kBase + group + "staleness = [0, 8]\n", "x.toml:6:13", {"imposed staleness", "run.async = false"}},
      {kBase + group + "max_sequences = 8\n", "x.toml:6:17", {"hold 8 sequences", "run.concurrency is 512"}},
      {kBase + "[run]\nrouting = \"round_robin\"\n" + group + "capacity = 0.5\n",
       "x.toml:8:12",
       {"a fixed share with run.routing = \"round_robin\"", "only run.routing = \"capacity\""}},
      {kBase + "[run]\nrouting = \"least_loaded\"\nasync = false\n", "x.toml:5:11", {"in lock-step"}},
      {kBase + "[run]\nconcurrency = 100\n", "x.toml:5:15", {"below one batch", "at least 256"}},
      {in_section("algo", "minibatches = 40"), "x.toml:6:15", {"groups are never split"}},
      {in_section("algo", "drop_equal_groups = true\nadvantage = \"reinforce\""), "x.toml:6:21", {"teaches as well"}},
      {in_section("algo", "advantage_level = \"turn\"\nadvantage = \"maxrl\""),
       "x.toml:6:19",
       {"with advantage \"maxrl\"", "\"dr_grpo\", \"grpo\" and \"rloo\""}},
      {in_section("algo", "advantage = \"reinforce\"\nadvantage_level = \"turn\""), "x.toml:7:19", {"\"reinforce\""}},
      {in_section("algo", "denominator = \"renormalized\"\nreduction = \"constant\""),
       "x.toml:6:15",
       {"counts no tokens"}},
      {in_section("algo", "advantage = \"maxrl\"\noverlong = \"penalty\""), "x.toml:7:12", {"negative"}},
      {in_section("algo", "advantage = \"maxrl\"\nkl = \"k1\"\nkl_coefficient = 0.1"), "x.toml:7:6", {"negative"}},
      {in_section("algo", "overlong = \"penalty\"\noverlong_tokens = 33"), "x.toml:7:19", {"33 of 32"}},
      {in_section("algo", "kl = \"k2\""), "x.toml:6:6", {"coefficient of 0"}},
      {in_section("algo", "kl_coefficient = 0.1"), "x.toml:6:18", {"without a KL term"}},
      {in_section("algo", "reference = \"nowhere\""), "x.toml:6:13", {"without a KL term"}},
      {in_section("algo", "kl = \"k2\"\nkl_coefficient = 0.1\nreference = \"nowhere\""),
       "x.toml:8:13",
       {"nowhere: no checkpoint there"}},
      {in_section("eval", "samples = 2"), "x.toml:5:11", {"pass@4 of 2 samples"}},
      {in_section("sampling", "record = \"sampled\"\ntop_p = 0.9"), "x.toml:5:10", {"candidate set", "\"auto\""}},
      {in_section("sampling", "record = \"full\"\ntop_k = 9"), "x.toml:5:10", {"candidate set"}},
      {"algo.correction = \"sc\"\n" + kTask + "[sampling]\nrecord = \"sampled\"\n",
       "x.toml:5:10",
       {"too little for correction 'sc'"}},
      {in_section("sampling", "record = \"sampled\"\n[probe]\ndrift_every = 5"),
       "x.toml:5:10",
       {"'grpo' or one of probe.drift"}},
      {in_section("probe", "drift_every = 5\ndrift = [\"mis\", \"miss\"]"), "x.toml:6:9", {"miss"}},
      {in_section("algo", "prompts = 1\n[probe]\ndrift_every = 5"), "x.toml:8:15", {"two halves of the prompts"}},
      {in_section("model", "kv_heads = 3"), "x.toml:5:12", {"4 heads cannot share 3"}},
      {in_section("model", "width = 130"), "x.toml:5:9", {"130 cannot be split over 4"}},
      {in_section("model", "width = 4"), "x.toml:5:9", {"odd"}},
      {in_section("model", "max_positions = 32"), "x.toml:5:17", {"max_tokens must be below"}},
      {in_section("model", "path = \"nowhere\""), "x.toml:5:8", {"nowhere: no checkpoint there"}},
      {in_section("model", "path = \"nowhere\"\nlayers = 2"), "x.toml:6:10", {"model.layers together with model.path"}},
      {in_section("warmstart", "data = \"nowhere.jsonl\""), "x.toml:5:8", {"'nowhere.jsonl' is no file"}},
      {"algo.correction = \"grpo\"\n[[tasks]]\nenv = \"jsonl\"\npath = \"nowhere.jsonl\"\n",
       "x.toml:2:1",
       {"nowhere.jsonl"}},
      {"algo.correction = \"mis\"\nalgo.parameters.mis.low = 9.0\n" + kTask, "x.toml:2:6", {"below the upper one"}},
  };
  for (const Broken& broken : table) require_refused(broken);
}

TEST_CASE("a warm start on a task that shows no right reply is refused, unless it has data of its own") {
  const TemporaryFolder folder;
  const std::string pairs =
      folder.write("a.jsonl", "{\"prompt\": \"1\", \"answer\": \"2+\"}\n{\"prompt\": \"2\", \"answer\": \"3+\"}\n")
          .string();
  const std::string toml = "algo.correction = \"grpo\"\n[[tasks]]\nenv = \"jsonl\"\nanswer = \"regex\"\npath = \"" +
                           pairs + "\"\n[warmstart]\nsteps = 3\n";
  require_refused({toml, "x.toml:7:9", {"'jsonl', which has no demonstrations", "set warmstart.data"}});
  CHECK(load(toml + "data = \"" + pairs + "\"\n").warmstart.steps == 3);
  CHECK(load(toml, {"tasks.0.answer=exact"}).warmstart.steps == 3);
  CHECK(load(toml, {"warmstart.steps=0"}).warmstart.steps == 0);
}

TEST_CASE("a group of one is allowed where nothing is compared, and the penalty's buffer follows the reply") {
  const Experiment e =
      load("sampling.max_tokens = 20\n" + in_section("algo", "group_size = 1\nadvantage = \"reinforce\""));
  CHECK(e.algo.group_size == 1);
  CHECK(e.algo.overlong_tokens == 4);
  CHECK(e.learner_config().overlong_tokens == 4);
}

TEST_CASE("lock-step needs neither a named correction nor slots for run.concurrency") {
  const Experiment e = load("run.async = false\nrun.concurrency = 8\n" + kTask +
                            "[[samplers]]\nname = \"a\"\nmax_sequences = 1\nstaleness = [0, 8]\n");
  CHECK(e.algo.correction == "grpo");
  CHECK(e.samplers[0].staleness == std::pair<int64_t, int64_t>{0, 8});
}

TEST_CASE("--set goes through the same checks") {
  const std::string two = kBase + "[[samplers]]\nname = \"a\"\n[[samplers]]\nname = \"b\"\n";
  const Experiment e = load(two,
                            {"trainer.lr=3e-5", "samplers.0.profile=h100-fp8", "samplers.b.replicas=2",
                             "tasks.0.digits=1", "tasks.arithmetic.weight=2", "eval.k=[1, 2]", "name=n1",
                             "run.async=false", "samplers.b.staleness=[1, 2]", "trainer.lr=2e-5"},
                            "9");
  CHECK(e.trainer.lr == 2e-5);
  CHECK(e.samplers[0].profile == "h100-fp8");
  CHECK(e.samplers[1].replicas == 2);
  CHECK(e.samplers[1].staleness == std::pair<int64_t, int64_t>{1, 2});
  CHECK(e.tasks[0].options.at("digits") == "1");
  CHECK(e.tasks[0].weight == 2.0);
  CHECK(e.eval.k == std::vector<int64_t>{1, 2});
  CHECK(e.name == "n1");
  CHECK(e.seed == 9);
  CHECK(load(kBase, {"samplers.0.profile=bf16"}).samplers[0].profile == "bf16");

  const std::vector<std::pair<std::string, std::string>> refused{
      {"run.updates=-3", "run.updates is the integer -3"},
      {"run.updates=\"3\"", "the text \"3\""},
      {"run.updates=", "no value"},
      {"run.updates", "no 'key=value'"},
      {"=3", "no 'key=value'"},
      {"run.async=flase", "the value is no TOML"},
      {"run.updates=1\nseed=2", "line break"},
      {"run.updats=3", "did you mean 'run.updates'?"},
      {"run=3", "there is no key 'run'"},
      {"samplers.c.profile=bf16", "allowed: 0 to 1, a, b"},
      {"samplers.2.profile=bf16", "there is no '2' in samplers"},
      {"samplers.a.profil=bf16", "did you mean 'profile'?"},
      {"tasks.0.digist=3", "did you mean 'digits'?"},
      {"tasks.0.digits=x", "no TOML"},
      {"algo.correction=grop", "(nearest: \"grpo\")"},
      {"algo.parameters.low=1", "it has none"},
      {"algo.parameters.mis.low=1", "it has none"},
      {"samplers.b.parameters.mis.low=1", "it has none"},
      {"a..b=1", "there is no key"},
  };
  for (const auto& [set, part] : refused) {
    const std::string message = refusal(two, {set});
    CAPTURE(set, message);
    CHECK(message.starts_with("--set "));
    CHECK(message.find(": error: ") != std::string::npos);
    CHECK(message.find(part) != std::string::npos);
  }
  CHECK(refusal(kBase, {}, "x").starts_with("--seed x: error: "));
}

TEST_CASE("another correction by --set does not inherit the parameters of the file's") {
  const std::string toml = "algo.correction = \"mis\"\nalgo.parameters.mis.low = 0.4\n" + kTask;
  CHECK(algos::number(load(toml).algo.parameters, "mis.low") == 0.4);
  CHECK(load(toml, {"algo.correction=grpo"}).algo.parameters.empty());
  CHECK(algos::number(load(toml, {"algo.correction=mis"}).algo.parameters, "mis.low") == 0.4);
  const Experiment both = load(toml, {"algo.correction=sc+mis", "algo.parameters.mis.high=3"});
  CHECK(algos::number(both.algo.parameters, "mis.high") == 3.0);
  CHECK(algos::number(both.algo.parameters, "mis.low") != 0.4);
}

TEST_CASE("the resolved experiment resolves to itself, byte for byte") {
  const TemporaryFolder folder;
  folder.write("pairs.jsonl", "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n");
  const std::string maximal =
      "name = \"max-1\"\nseed = 77\n[run]\nupdates = 3\nasync = false\nkeep_trajectories = \"last 10\"\nmax_staleness "
      "= 8\n"
      "dir = \"a \\\"b\\\" \\\\ c\"\n[model]\nqk_norm = true\nrope_theta = 1e6\nnorm_eps = 1e-5\n"
      "[[tasks]]\nenv = \"arithmetic\"\nweight = 3\n[[tasks]]\nenv = \"running_sum\"\n[warmstart]\nsteps = 5\ndata = "
      "\"" +
      (folder.path() / "pairs.jsonl").string() +
      "\"\n[sampling]\nrecord = \"full\"\n[algo]\ncorrection = \"sc+mis\"\n[algo.parameters]\nmis.low = "
      "0.3\n[trainer]\nlr "
      "= 4e-4\n"
      "eps = 1e-8\nweight_decay = 0.1\nschedule = \"cosine\"\n[[samplers]]\nname = \"a\"\ncapacity = 0.25\nstaleness = "
      "[0, 8]\n"
      "[[samplers]]\nname = \"b\"\nprofile = \"h100-fp8\"\nprice_per_hour = 3.95\nparameters.mis.high = 3.0\n[eval]\nk "
      "= [1, 16]\nprofiles = "
      "[\"bf16\", \"fp32\"]\n";
  std::vector<std::pair<std::string, std::string>> cases{{"smallest", kBase}, {"maximal", maximal}};
  for (const auto& entry : std::filesystem::directory_iterator(MOTLEY_SOURCE_DIR "/experiments")) {
    if (entry.path().extension() != ".toml") continue;
    std::ifstream in(entry.path());
    std::ostringstream text;
    text << in.rdbuf();
    cases.emplace_back(entry.path().filename().string(), text.str());
  }
  CHECK(cases.size() >= 3);
  for (const auto& [name, toml] : cases) {
    CAPTURE(name);
    const std::string once = experiment_to_toml(load(toml));
    CHECK(experiment_to_toml(load(once)) == once);
    CHECK(once.find('#') == std::string::npos);
    CHECK(experiment_to_toml(parse_experiment(once, "the run's experiment")) == once);
  }
  const Experiment e = load(maximal);
  const std::string text = experiment_to_toml(e);
  CHECK(text.find("\nlr = 0.0004\n") != std::string::npos);
  CHECK(text.find("\ndir = \"a \\\"b\\\" \\\\ c\"\n") != std::string::npos);
  CHECK(text.find("\nsamples = 16\n") != std::string::npos);
  CHECK(text.find("\n[algo.parameters]\nmis.high = ") != std::string::npos);
  CHECK(load(text).run.dir == "a \"b\" \\ c");
  CHECK(experiment_values(e).at("samplers.1.profile") == "\"h100-fp8\"");
  CHECK(experiment_values(e).at("algo.parameters.mis.low") == "0.3");
}

TEST_CASE("the experiment of a run elsewhere may name data that is not here, but nothing that makes no sense") {
  const std::string text = "[run]\nasync = false\n[[tasks]]\nenv = \"arithmetic\"\n[[samplers]]\nname = \"one\"\n";
  const std::string data = "[warmstart]\nsteps = 3\ndata = \"/nowhere/x.jsonl\"\n";
  CHECK(parse_experiment(text + data, "the run").warmstart.data == "/nowhere/x.jsonl");
  CHECK(refusal(text + data).find("'/nowhere/x.jsonl' is no file") != std::string::npos);
  CHECK_THROWS_WITH(parse_experiment("speed = 1\n" + text, "the run"),
                    Catch::Matchers::StartsWith("the run:") && Catch::Matchers::Contains("speed"));
}

TEST_CASE("doubles are printed in the shortest form that reads back") {
  CHECK(toml_number(1.0) == "1.0");
  CHECK(toml_number(65536.0) == "65536.0");
  CHECK(toml_number(4e-4) == "0.0004");
  CHECK(toml_number(1e-8) == "1e-08");
  CHECK(toml_number(0.1 + 0.2) == "0.30000000000000004");
  CHECK(toml_number(-0.0) == "-0.0");
  for (const double value : {1e300, 5e-324, 1e16, 123456789.125}) {
    CHECK(parse_toml_value(toml_number(value), {"x"}).number == value);
  }
}

TEST_CASE("nearest_name") {
  const std::vector<std::string> names{"grpo", "mis", "sc", "sc+mis", "tis"};
  CHECK(nearest_name("gpro", names) == "grpo");
  CHECK(nearest_name("SC+MIS", names) == "sc+mis");
  CHECK(nearest_name("completely-different", names).empty());
  CHECK(nearest_name("", names).empty());
  CHECK(nearest_name("b200", std::vector<std::string>{"b200-nvfp4"}) == "b200-nvfp4");
}

TEST_CASE("options of a task on the command line") {
  CHECK(task_options("arithmetic", {"digits=3"}).at("digits") == "3");
  CHECK_THROWS_WITH(task_options("aritmetic", {}), Catch::Contains("did you mean 'arithmetic'?"));
  CHECK_THROWS_WITH(task_options("arithmetic", {"digist=3"}), Catch::Contains("did you mean 'digits'?"));
  CHECK_THROWS_WITH(task_options("arithmetic", {"digits=x"}), Catch::Contains("no TOML"));
  CHECK_THROWS_WITH(task_options("arithmetic", {"digits"}), Catch::Contains("no 'key=value'"));
}

TEST_CASE("docs/experiment.md is what the schema says") {
  std::ifstream in(MOTLEY_SOURCE_DIR "/docs/experiment.md");
  std::ostringstream text;
  text << in.rdbuf();
  INFO("write it again with: motley schema >docs/experiment.md");
  CHECK(text.str() == schema_page());
}

}  // namespace motley::app
