#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "actors/checkpoint.h"
#include "actors/remote/join.h"
#include "actors/run.h"
#include "actors/security/addresses.h"
#include "actors/security/keys.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"
#include "envs/environment.h"

namespace motley::app {
namespace {

constexpr uint64_t kMaxSeed = 9000000000000000;  // as in the TOML

/// The parsed arguments of every command, and the command to run.
struct CommandLine {
  RunArguments run;
  SamplerArguments sampler;
  WorkerArguments worker;
  LearnerArguments learner;
  EvaluatorArguments evaluator;
  GenerateArguments generate;
  ScoreArguments score;
  EvalArguments eval;
  MismatchArguments mismatch;
  BenchArguments bench;
  AuditArguments audit;
  TasksArguments tasks;
  SimulateArguments simulate;
  std::string list_topic, schema_page, key_file;
  bool list_json = false, doctor_json = false;
  std::function<int()> command;
};

/// CLI::Range lets NaN through, which is neither below nor above anything.
CLI::Validator number_between(double low, double high) {
  const auto check = [low, high](const std::string& text) {
    double value = 0.0;
    const bool inside = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
    return inside ? std::string() : fmt::format("Value {} not in range {} to {}", text, low, high);
  };
  return CLI::Validator([check](std::string& text) { return check(text); },
                        fmt::format("FLOAT in [{} - {}]", low, high));
}

CLI::Option* repeated(CLI::Option* option) { return option->take_all()->allow_extra_args(false); }

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("run", "run an experiment");
  RunArguments& a = line.run;
  command->add_option("experiment", a.toml, "TOML file; without it --resume takes the run's own");
  repeated(command->add_option("--set", a.sets, "key=value, over the file's: --set algo.correction=grpo"));
  command->add_option("--seed", a.seed, "over the file's seed");
  command->add_option("--resume", a.resume, "run folder, or a checkpoint in one, to go on from");
  command->add_option("--stop-after", a.stop_after, "stop with a checkpoint after this update")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000000}));
  command->add_option(
      "--listen", a.listen,
      "HOST:PORT where samplers, workers and others join from elsewhere, and the three ports above; port 0: any");
  command->add_option("--key", a.key, "the fleet's key file (motley keygen); needed beyond this machine");
  command->add_flag("--dry-run", a.dry_run, "print the resolved experiment and stop");
  command->add_flag("--json", a.json, "the closing table as JSON");
  command->callback([&line] { line.command = [&line] { return run_command(line.run); }; });
}

CLI::Option* add_patience(CLI::App* command, int64_t& patience) {
  return command->add_option("--patience", patience, "seconds for which a run that is not there is tried for")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
}

void add_threads(CLI::App* command, int64_t& threads) {
  command->add_option("--threads", threads, "compute threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_sampler(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("sampler", "add a sampler to a run, from this or another machine");
  SamplerArguments& a = line.sampler;
  command->add_option("--join", a.join, "HOST:PORT of the run's --listen")->required();
  command->add_option("--group", a.group, "of [[samplers]]; default: the one whose profile stands for the device");
  command->add_option("--device", a.device, std::string("that computes: auto, ") + kDeviceForm)->capture_default_str();
  command->add_option("--key", a.key, "the fleet's key file (motley keygen)");
  command->add_option("--model", a.model, "checkpoint or run folder whose model the run must have");
  add_threads(command, a.threads);
  add_patience(command, a.patience);
  command->add_option("--instance", a.instance, "name by which a provisioner knows this process")->group("");
  command->callback([&line] { line.command = [&line] { return sampler_command(line.sampler); }; });
}

void add_worker(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("worker", "make a run's calls into its tasks here: rewards, and the steps of interactions");
  WorkerArguments& a = line.worker;
  command->add_option("--join", a.join, "HOST:PORT of the run's --listen")->required();
  command->add_option("--slots", a.slots, "calls at once; 0: two per core, at least 4")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--key", a.key, "the fleet's key file (motley keygen)");
  add_patience(command, a.patience);
  command->callback([&line] { line.command = [&line] { return worker_command(line.worker); }; });
}

void add_learner(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("learner", "compute the optimizer steps of a run that waits for it (run.learner = \"joins\")");
  LearnerArguments& a = line.learner;
  command->add_option("--join", a.join, "HOST:PORT of the run's --listen")->required();
  command->add_option("--device", a.device, std::string("that computes: auto, ") + kDeviceForm)->capture_default_str();
  command->add_option("--key", a.key, "the fleet's key file (motley keygen)");
  add_threads(command, a.threads);
  add_patience(command, a.patience);
  command->callback([&line] { line.command = [&line] { return learner_command(line.learner); }; });
}

void add_evaluator(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("evaluator", "make a run's evaluations here");
  EvaluatorArguments& a = line.evaluator;
  command->add_option("--join", a.join, "HOST:PORT of the run's --listen")->required();
  command->add_option("--device", a.device, std::string("that computes: auto, ") + kDeviceForm)->capture_default_str();
  command->add_option("--key", a.key, "the fleet's key file (motley keygen)");
  add_threads(command, a.threads);
  add_patience(command, a.patience);
  command->callback([&line] { line.command = [&line] { return evaluator_command(line.evaluator); }; });
}

void add_device(CLI::App* command, std::string& device, const char* text) {
  command->add_option("--device", device, std::string(text) + ": " + kDeviceForm)->capture_default_str();
}

void add_sampling(CLI::App* command, std::string& profile, double& temperature, double& top_p, uint64_t& seed) {
  command->add_option("--profile", profile, "numeric profile (motley list profiles)")->capture_default_str();
  command->add_option("--temperature", temperature, "0: greedy")
      ->check(number_between(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-p", top_p, "smallest set of tokens with this much probability; 1: all")
      ->check(number_between(1e-9, 1.0))
      ->capture_default_str();
  command->add_option("--seed", seed, "of the random numbers")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed))
      ->capture_default_str();
}

void add_generate(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("generate", "sample from a model in a numeric profile");
  GenerateArguments& a = line.generate;
  command->add_option("model", a.model, "checkpoint or run folder")->required();
  command->add_option("--prompt", a.prompt, "text that the sample goes on from")->required();
  command->add_option("--max-tokens", a.max_tokens, "of a reply")->check(CLI::Range(1, 1000000))->capture_default_str();
  add_sampling(command, a.profile, a.temperature, a.top_p, a.seed);
  add_device(command, a.device, "that computes");
  command->add_option("--top-k", a.top_k, "0: off")->check(CLI::Range(0, 1000000))->capture_default_str();
  command->add_option("-n", a.count, "how many")->check(CLI::Range(1, 65536))->capture_default_str();
  command->add_flag("--json", a.json, "the result as JSON");
  command->callback([&line] { line.command = [&line] { return generate_command(line.generate); }; });
}

void add_score(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("score", "per-token log-probabilities of given token ids or text");
  ScoreArguments& a = line.score;
  command->add_option("model", a.model, "checkpoint or run folder")->required();
  command
      ->add_option("--input", a.input, R"(JSONL of {"tokens": [...]}, {"text": ...} or {"prompt": ..., "answer": ...})")
      ->required();
  command->add_option("--profile", a.profile, "numeric profile (motley list profiles)")->capture_default_str();
  add_device(command, a.device, "that computes");
  command->callback([&line] { line.command = [&line] { return score_command(line.score); }; });
}

void add_eval(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("eval", "pass@k of a checkpoint on a task's held-out prompts");
  EvalArguments& a = line.eval;
  command->add_option("checkpoint", a.checkpoint, "checkpoint or run folder")->required();
  command->add_option("--task", a.task, "motley list envs")->required();
  repeated(
      command->add_option("--option", a.options, "key=value of the task; those not given are the checkpoint's run's"));
  command->add_option("--k", a.k, "pass@k for each of these, separated by commas; default: 1,4")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1000000));
  command->add_option("--samples", a.samples, "per prompt; default: the largest k")->check(CLI::Range(1, 1000000));
  command->add_option("--sets", a.sets, "of held-out problems, separated by commas: those of the task; default: full")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--prompts", a.prompts, "held-out problems of a set")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--max-tokens", a.max_tokens, "of a reply")->check(CLI::Range(1, 1000000))->capture_default_str();
  add_sampling(command, a.profile, a.temperature, a.top_p, a.seed);
  add_device(command, a.device, "that computes");
  command->add_flag("--json", a.json, "the result as JSON");
  command->callback([&line] { line.command = [&line] { return eval_command(line.eval); }; });
}

void add_mismatch(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("mismatch", "how far numeric profiles disagree on the same weights, and why");
  MismatchArguments& a = line.mismatch;
  command->add_option("model", a.model, "checkpoint or run folder")->required();
  command->add_option("--sampler", a.samplers, "numeric profiles that draw, separated by commas (motley list profiles)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  command->add_option("--trainer", a.trainer, "numeric profile that they are held against")->required();
  command->add_option("--responses", a.responses, "how many are drawn")
      ->check(CLI::Range(1, 65536))
      ->take_last()
      ->capture_default_str();
  command->add_option("--prompts", a.prompts, R"(JSONL of {"prompt": ...}, {"text": ...} or {"tokens": [...]})");
  command->add_option("--env", a.env, "or the held-out prompts of this env; default: the first of MODEL's run");
  command->add_option("--length", a.length, "tokens of a response at most")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--run-on", a.run_on, "responses do not stop at the end token, but have their full length");
  command->add_option("--temperature", a.temperature, "of both")
      ->check(number_between(1e-3, 100.0))
      ->capture_default_str();
  command->add_option("--seed", a.seed, "of the random numbers")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed))
      ->capture_default_str();
  command->add_option("--attribution", a.attribution, "to operations (classes), to layers as well (layers), or off")
      ->check(CLI::IsMember({"off", "classes", "layers"}))
      ->capture_default_str();
  const CLI::Range tiles(0, 65536);
  command->add_option("--sampler-tile", a.sampler_tile, "products summed in one chain, over the profile's own; 0: all")
      ->check(tiles);
  command->add_option("--trainer-tile", a.trainer_tile, "the same for the trainer")->check(tiles);
  add_device(command, a.device, "that responses are drawn on, then held against passes of the CPU");
  command->add_option("--plot", a.plot, "writes an HTML page of plots");
  command->add_flag("--json", a.json, "the result as JSON");
  command->callback([&line] { line.command = [&line] { return mismatch_command(line.mismatch); }; });
}

void add_bench(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand(
      "bench", "times kernels, sampler, trainer, weights on their way, actors or a run on this machine");
  BenchArguments& a = line.bench;
  const auto list = [&](const char* name, auto& values, const char* text) {
    return command->add_option(name, values, text)->delimiter(',')->allow_extra_args(false);
  };
  command->add_option("what", a.what, "kernels, sampler, trainer, weights, actors or run")->required();
  command->add_option("experiment", a.experiment, "TOML file (run)");
  repeated(command->add_option("--set", a.sets, "key=value, over the file's (run)"));
  list("--only", a.only, "groups of kernels, separated by commas: products, attention, ... (kernels)");
  list("--shape", a.shapes, "1M, 25M, 135M (sampler, trainer, weights)");
  list("--profile", a.profiles, "numeric profiles (motley list profiles) (all but run)");
  list("--threads", a.threads, "numbers of compute threads; default: 1 (kernels, sampler, trainer)")
      ->check(CLI::Range(1, 1024));
  list("--batch", a.batches, "rows of a product, sequences of a sampler (kernels, sampler)")
      ->check(CLI::Range(1, 65536));
  list("--context", a.contexts, "positions that the cache holds already (sampler)")->check(CLI::Range(1, 65536));
  command->add_option("--repetitions", a.repetitions, "of each case (all but run)")->check(CLI::Range(1, 1000));
  command->add_flag("--quick", a.quick, "small sizes and few repetitions: a look, no measurement (all but run)");
  command->add_flag("--rows-only", a.rows_only, "no ceilings (all but run)");
  command->add_flag("--json", a.json, "one JSON object");
  command->callback([&line] { line.command = [&line] { return bench_command(line.bench); }; });
}

void add_audit(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("audit", "bias, variance and drift of corrections against the exact gradient, by enumeration");
  AuditArguments& a = line.audit;
  repeated(command->add_option("--correction", a.corrections, "motley list corrections; default: all"));
  repeated(command->add_option("--set", a.sets, "parameter of corrections: --set mis.low=0.2"));
  repeated(command->add_option("--mismatch", a.mismatches,
                               "how far the sampler is: a sum of none, PROFILE, stale=K, scale=X, noise=S, top-p=P; "
                               "default: a ladder of five"));
  command->add_option("--batch", a.batch, "sequences that the estimate is a mean over")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--problems", a.problems, "random problems to average over; default: 8")
      ->check(CLI::Range(1, 10000));
  command->add_option("--policy", a.policy, "transformer or table; default: transformer");
  command->add_option("--vocabulary", a.vocabulary, "tokens; default: 5")->check(CLI::Range(2, 16));
  command->add_option("--length", a.length, "most tokens of a sequence; default: 4")->check(CLI::Range(1, 16));
  command->add_flag("--no-end", a.no_end, "no end token: all sequences are of one length");
  command->add_option("--baseline", a.baseline, "of the advantage; default: the sampler's expected reward")
      ->check(number_between(-1e6, 1e6));
  command->add_option("--record-top-k", a.record_top_k, "ids that a top-K record lists; default: all")
      ->check(CLI::Range(1, 16));
  command->add_option("--steps-since-old", a.steps_since_old, "optimizer steps since pi_old, so that clips bind")
      ->check(CLI::Range(0, 16));
  command->add_option("--sampled-batches", a.sampled_batches, "of a batch-scope rule that is not enumerated")
      ->check(CLI::Range(40, 1000000))
      ->capture_default_str();
  command->add_option("--seed", a.seed, "of problems and samples")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed))
      ->capture_default_str();
  command->add_option("--problem", a.problem, "JSON, as --print-problem writes it");
  command->add_flag("--print-problem", a.print_problem, "the problem of --seed as JSON, and stop");
  command->add_option("--plot", a.plot, "write FILE.html or FILE.svg: figures against mismatch");
  command->add_flag("--table", a.table, "one Markdown table: a line per correction, a column per mismatch");
  command->add_flag("--json", a.json, "the result as JSON");
  command->callback([&line] { line.command = [&line] { return audit_command(line.audit); }; });
}

void add_tasks(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("tasks", "repository tasks: generate makes small ones, check looks for what is wrong");
  TasksArguments& a = line.tasks;
  command->add_option("action", a.action, "generate or check")->required()->check(CLI::IsMember({"generate", "check"}));
  command->add_option("path", a.path, "a folder; of check also a .jsonl file")->required();
  command->add_option("--seed", a.seed, "of the tasks (generate)")
      ->check(CLI::Range(uint64_t{0}, kMaxSeed))
      ->capture_default_str();
  command->add_option("--count", a.count, "of the tasks (generate)")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag("--no-run", a.no_run, "only what shows without running tests in sandboxes (check)");
  command->add_flag("--json", a.json, "the result as JSON");
  command->callback([&line] { line.command = [&line] { return tasks_command(line.tasks); }; });
}

void add_simulate(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("simulate", "a fleet in simulated time: throughput, staleness, idle shares, cost");
  SimulateArguments& a = line.simulate;
  command->add_option("fleet", a.toml, "TOML file (docs/fleet.md)")->required();
  command->add_option("--seed", a.seed, "over the file's seed")->check(CLI::Range(uint64_t{0}, kMaxSeed));
  command->add_flag("--json", a.json, "the result as JSON");
  command->callback([&line] { line.command = [&line] { return simulate_command(line.simulate); }; });
}

void add_keygen(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand(
      "keygen", "a key file for a fleet over machines: who holds it may join, and nobody else (docs/fleet.md)");
  command->add_option("file", line.key_file, "that is made, readable for its owner alone; never one that exists")
      ->required();
  command->callback([&line] { line.command = [&line] { return keygen_command(line.key_file); }; });
}

void add_rest(CLI::App& app, CommandLine& line) {
  CLI::App* list = app.add_subcommand("list", "every name that a TOML may use, with one line each");
  list->add_option("what", line.list_topic, join(list_topics(), ", "))->required();
  list->add_flag("--json", line.list_json, "as JSON");
  list->callback([&line] { line.command = [&line] { return list_command(line.list_topic, line.list_json); }; });
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine can do, and what is missing");
  doctor->add_flag("--json", line.doctor_json, "as JSON");
  doctor->callback([&line] { line.command = [&line] { return doctor_command(line.doctor_json); }; });
  CLI::App* schema =
      app.add_subcommand("schema", "the text of docs/experiment.md, or the tables of docs/fleet.md")->group("");
  schema->add_option("page", line.schema_page, "experiment or fleet")->check(CLI::IsMember({"experiment", "fleet"}));
  schema->callback([&line] { line.command = [&line] { return schema_command(line.schema_page); }; });
}

/// Results that did not reach stdout (a full disk, a closed pipe) are no success.
void flush_results() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw std::runtime_error(std::string("the results could not be written to stdout: ") + std::strerror(errno));
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// The first argument that no option and no command expects, with the nearest name.
[[noreturn]] void refuse_extra(const CLI::App& app, const std::string& extra) {
  const CLI::App* command = &app;
  for (const CLI::App* used : app.get_subcommands()) command = used;
  const std::string where = command == &app ? "motley" : "motley " + command->get_name();
  std::vector<std::string> names;
  if (extra.starts_with("-")) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string bare = extra.substr(0, extra.find('='));
    throw InputError({where}, "unknown option '" + bare + "'", "allowed: " + join(names, ", "),
                     nearest_name(bare, names));
  }
  throw InputError({where}, "unexpected argument '" + extra + "'", "see " + where + " --help");
}

/// CLI11 would miss a command first, and call an unknown one an unexpected argument.
void check_first_argument(const CLI::App& app, const std::string& name) {
  const bool known_option = name == "-h" || name == "--help" || name == "--version";
  if (name.starts_with("-") && !known_option) refuse_extra(app, name);
  if (!name.starts_with("-")) {
    std::vector<std::string> names = command_names(app);
    if (app.get_subcommands([&](const CLI::App* c) { return c->get_name() == name; }).empty()) {
      throw InputError({"motley"}, "unknown command '" + name + "'", "allowed: " + join(names, ", "),
                       nearest_name(name, names));
    }
  }
}

int parse(CLI::App& app, int argc, char** argv) {
  if (argc > 1) check_first_argument(app, argv[1]);
  try {
    app.parse(argc, argv);
    return -1;
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = app.remaining(true);
    refuse_extra(app, extras.empty() ? "" : extras.front());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    std::string where = "motley";
    for (const CLI::App* used : app.get_subcommands()) where += " " + used->get_name();
    throw InputError({where}, error.what(), "see " + where + " --help");
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  try {
    CLI::App app("motley: reinforcement learning of language models on a mixed fleet of samplers", "motley");
    app.set_version_flag("--version", "motley " MOTLEY_VERSION);
    app.require_subcommand(1);
    CommandLine line;
    add_run(app, line);
    add_sampler(app, line);
    add_worker(app, line);
    add_learner(app, line);
    add_evaluator(app, line);
    add_generate(app, line);
    add_score(app, line);
    add_eval(app, line);
    add_mismatch(app, line);
    add_bench(app, line);
    add_audit(app, line);
    add_tasks(app, line);
    add_simulate(app, line);
    add_keygen(app, line);
    add_rest(app, line);
    if (const int code = parse(app, argc, argv); code >= 0) return code;
    const int code = line.command();
    flush_results();
    return code;
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const actors::CheckpointError& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 2;
  } catch (const ModelFileError& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 2;
  } catch (const actors::JoinRefused& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 2;
  } catch (const envs::TaskError& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 2;
  } catch (const actors::KeyError& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 2;
  } catch (const actors::AddressError& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "motley: error: %s\n", error.what());
    return 1;
  }
}

}  // namespace motley::app
