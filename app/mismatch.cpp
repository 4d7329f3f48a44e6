// motley mismatch: how far two numeric profiles disagree on the same weights and responses, and which operations cause
// it.
#include "app/mismatch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/checkpoint_tasks.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/input_error.h"
#include "app/output_file.h"
#include "app/schema.h"
#include "app/token_lines.h"
#include "kernels/product_body.h"
#include "tensor/model_file.h"

namespace motley::app {
namespace {

using algos::mismatch::Detail;
using algos::mismatch::Drawing;
using algos::mismatch::Measurement;

struct Prompts {
  std::string source;
  std::vector<std::vector<int32_t>> tokens;
};

Prompts prompts_of_file(const Policy& policy, const std::string& file, int64_t most) {
  Prompts prompts{"prompts of " + file, {}};
  for (const TokenLine& line : read_token_lines(policy, file, LineUse::prompts)) {
    if (static_cast<int64_t>(prompts.tokens.size()) < most) prompts.tokens.push_back(line.tokens);
  }
  return prompts;
}

Prompts prompts_of_env(const Policy& policy, const MismatchArguments& arguments, const std::string& env) {
  if (!envs::find_task(env)) {
    throw InputError({"--env " + env}, "there is no such env", "allowed: " + join(env_names(), ", "),
                     nearest_name(env, env_names()));
  }
  const envs::TaskMix tasks = checkpoint_tasks(arguments.model, env, {}, arguments.seed);
  require_symbols(tasks, policy.need_tokenizer(), "env", env);
  Prompts prompts{"held-out prompts of " + env, {}};
  for (const auto& pick : tasks.held_out_set(envs::kFullSet, static_cast<uint64_t>(arguments.responses)))
    prompts.tokens.push_back(policy.need_tokenizer().encode(pick.problem.prompt));
  return prompts;
}

Prompts find_prompts(const Policy& policy, const MismatchArguments& arguments) {
  if (!arguments.prompts.empty() && !arguments.env.empty()) {
    throw InputError({"motley mismatch"}, "both --prompts and --env", "prompts come from one of them");
  }
  if (!arguments.prompts.empty()) return prompts_of_file(policy, arguments.prompts, arguments.responses);
  const std::string env = arguments.env.empty() ? first_task_of_run(arguments.model) : arguments.env;
  if (env.empty()) {
    throw InputError({"motley mismatch"}, "no prompts: " + arguments.model + " lies in no run folder",
                     "give --prompts FILE or --env NAME");
  }
  return prompts_of_env(policy, arguments, env);
}

kernels::NumericProfile chosen_profile(const std::string& option, const std::string& name,
                                       const std::optional<int64_t>& tile) {
  kernels::NumericProfile profile = profile_argument(option, name);
  if (!tile) return profile;
  profile.k_tile = *tile;
  profile.name += fmt::format(", tile {}", *tile);
  return profile;
}

Detail detail_of(const std::string& name) {
  return name == "off" ? Detail::off : name == "layers" ? Detail::layers : Detail::classes;
}

Drawing drawing_of(const Policy& policy, const MismatchArguments& arguments, const kernels::Device& device) {
  Drawing drawing;
  drawing.responses = arguments.responses;
  drawing.length = arguments.length;
  drawing.temperature = arguments.temperature;
  drawing.seed = arguments.seed;
  drawing.device = device;
  if (policy.tokenizer) {
    drawing.vocabulary = policy.tokenizer->size();
    if (!arguments.run_on) drawing.stop_tokens = {policy.tokenizer->eos()};
  }
  return drawing;
}

/// A line that a terminal overwrites.
void show_progress(const std::string& profile, int64_t done, int64_t of) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%s: pass %lld of %lld%s", profile.c_str(), static_cast<long long>(done),
               static_cast<long long>(of), done == of ? "\r\033[K" : "");
}

Measurement measured(const OpenedModel& model, const kernels::NumericProfile& sampler,
                     const kernels::NumericProfile& trainer, const Prompts& prompts, const Drawing& drawing,
                     Detail detail) {
  try {
    return algos::mismatch::measure(model.policy.config, model.masters, sampler, trainer, prompts.tokens, drawing,
                                    detail, [&](int64_t done, int64_t of) { show_progress(sampler.name, done, of); });
  } catch (const std::invalid_argument& error) {
    throw InputError({"motley mismatch"}, error.what());
  }
}

/// Bits that a decode step and a pass over the whole sequence do not share would be mismatch of our own making; only
/// matrix units of a device have bits of their own, and how far these are from the CPU's is worth a line.
void tell_of_differing_records(const Measurement& measurement, const kernels::Device& device) {
  const bool units = product_body(measurement.sampler, device) == kernels::ProductBody::matrix_units;
  if (measurement.recorded_differs == 0 && !units) return;
  std::fputs(fmt::format("motley mismatch: {}{}: the engine{} recorded other bits than the full pass for {} of {} "
                         "tokens, log q by {:.2g} at most\n",
                         units ? "" : "warning: ", measurement.sampler.name,
                         units ? ", whose products are on matrix units," : "", measurement.recorded_differs,
                         measurement.summary.tokens, measurement.recorded_difference)
                 .c_str(),
             stderr);
}

}  // namespace

std::string mismatch_title(const Measurement& measurement) {
  return measurement.sampler.name + " against " + measurement.trainer.name;
}

std::string with_commas(int64_t count) {
  std::string text = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

int mismatch_command(const MismatchArguments& arguments) {
  if (!arguments.plot.empty()) check_output_file("motley mismatch --plot", arguments.plot);
  std::vector<kernels::NumericProfile> samplers;
  for (const std::string& name : arguments.samplers) {
    samplers.push_back(chosen_profile("--sampler", name, arguments.sampler_tile));
  }
  const kernels::NumericProfile trainer = chosen_profile("--trainer", arguments.trainer, arguments.trainer_tile);
  const kernels::Device device = device_argument(arguments.device);
  const OpenedModel model = open_model(arguments.model);
  const Prompts prompts = find_prompts(model.policy, arguments);
  MismatchReport report{model.policy.folder.string(),
                        prompts.source,
                        static_cast<int64_t>(prompts.tokens.size()),
                        drawing_of(model.policy, arguments, device),
                        {}};
  for (const kernels::NumericProfile& sampler : samplers) {
    report.measurements.push_back(
        measured(model, sampler, trainer, prompts, report.drawing, detail_of(arguments.attribution)));
    tell_of_differing_records(report.measurements.back(), device);
  }
  if (!arguments.plot.empty()) write_file_atomically(arguments.plot, mismatch_page(report));
  const std::string text = arguments.json ? mismatch_json(report).dump() + "\n" : mismatch_text(report);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace motley::app
